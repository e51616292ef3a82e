"""Training an EAGLE-3 head on the target's states: what is learnt from one batch, and the loop that can be stopped at any moment.

The loss of a draft is the cross entropy of the head's distribution against the target's, both over the draft vocabulary: the target's
doubts teach more than its choice. A step is unrolled on the head's own outputs, as drafting does, for as long as its drafts are accepted
(`unroll`). Places at which a step would really have started, given what the head accepts today, weigh 1, all others `elsewhere`; pass j
weighs decay^j.

What the head reads of each auxiliary layer is scaled to one size while it is learnt, since a late layer's states can be a hundred times
an early one's; `folded` puts the scales into `fc`, so that the published head reads the states as they are.

Every number follows from the seed, the epoch and the update; what is kept of a run is its weights, their moving average, the optimizer's
moments and how far it is. A run that was killed goes on from there to the same head.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields, replace
from math import ceil, cos, isfinite, pi
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.nn import functional

from paceline.engine.eagle3 import Eagle3Head
from paceline.engine.peers import Peers
from paceline.engine.replay import Replayed, head_replay, starting_places, walk
from paceline.engine.states import Conversation, save_whole
from paceline.engine.unroll import Batch, batch_of, is_named, unroll
from paceline.errors import BadInputError, printable
from paceline.files.bounded import need_file
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.trained_head import Epoch, best_epoch

__all__ = ["Lesson", "Settings", "Trainee", "folded", "held_out_counts", "loss_of", "train"]

SCHEMA = "paceline.eagle3-training/3"
REMEDY = "to go on, or choose another folder for --out"
PROGRESS = "progress.safetensors"
LONGEST_NORM = 1.0
BETAS = (0.9, 0.95)
MOMENTS = ("step", "exp_avg", "exp_avg_sq")
LEAST_RATE = 0.02  # of the peak, at the end
WARM_UP = 0.04  # share of the updates
SORTED_BATCHES = 8
HELD_OUT_ROWS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the head is trained.

    Attributes:
        epochs: passes over the conversations.
        rows: conversations per update.
        passes: drafts unrolled per step (training-time test).
        draft_tokens: K, at which held-out acceptance chooses the best epoch.
        learning_rate: of AdamW, at its peak.
        weight_decay: of AdamW, on matrices.
        pass_decay: weight of a pass relative to the one before.
        elsewhere: weight of places where no step would start, relative to those where one would.
        average: of the weights, how much of the moving average an update keeps.
        save_every: updates between two states kept on disk.
        seed: of the order.

    """

    epochs: int
    rows: int
    passes: int
    draft_tokens: int
    learning_rate: float
    weight_decay: float
    pass_decay: float
    elsewhere: float
    average: float
    save_every: int
    seed: int


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """What is learnt from: conversations for training, others held out, and the target's side of the loss.

    Attributes:
        training: conversations.
        held_out: conversations that training never sees.
        embedding: the target's [vocab, hidden], which the head reads.
        judge: rows of the target's output head for the draft vocabulary [draft vocab, hidden].
        can_draft: whether each of the target's tokens is in the draft vocabulary [vocab].

    """

    training: Sequence[Conversation]
    held_out: Sequence[Conversation]
    embedding: Tensor
    judge: Tensor
    can_draft: Tensor


@dataclass(slots=True, eq=False)
class Trainee:
    """The head in training: its weights, their moving average, and the scale of each auxiliary layer [layers]."""

    head: Eagle3Head
    averaged: Eagle3Head
    scales: Tensor

    def scaled(self, conversation: Conversation) -> Conversation:
        """The conversation as the head reads it while it learns."""
        layers = self.scales.shape[0]
        aux = conversation.aux.float().unflatten(-1, (layers, -1)) * self.scales[:, None]
        return replace(conversation, aux=aux.flatten(-2))


def loss_of(trainee: Trainee, lesson: Lesson, conversations: Sequence[Conversation], settings: Settings) -> tuple[Tensor, Tensor]:
    """The loss of one update, summed over places, passes and places weighted as the module says; and the weight of its places. Scalars."""
    batch = batch_of([trainee.scaled(each) for each in conversations], like=lesson.embedding)
    steps = batch.starts.shape[0]
    wanted = functional.linear(batch.features[batch.starts + 1], lesson.judge).softmax(-1)  # [steps, draft vocab]
    runs = torch.zeros_like(batch.starts)
    losses: list[tuple[Tensor, Tensor]] = []
    for number, each in enumerate(unroll(trainee.head, lesson.embedding, batch, draft_tokens=settings.passes, accept=is_named)):
        # The j-th draft of a step is judged where the first one of the j-th step behind it is: both are of one answer.
        entropy = -(wanted[each.steps + number] * functional.log_softmax(each.drafted.logits, dim=-1)).sum(-1)
        counted = lesson.can_draft[each.drafted.wanted] * settings.pass_decay**number
        runs[each.steps] += each.hit
        losses.append((each.steps, entropy * counted))
    weights = torch.full((steps,), settings.elsewhere, device=runs.device)
    weights[_started(batch, runs, settings.draft_tokens)] = 1.0
    return torch.stack([(weights[at] * own).sum() for at, own in losses]).sum(), weights.sum()


def _started(batch: Batch, runs: Tensor, draft_tokens: int) -> Tensor:
    """The steps that would really have started, given everyone's runs."""
    found, first, reached = [], 0, runs.cpu().numpy()
    for places in torch.bincount(batch.conversation[batch.starts], minlength=len(batch.padded)).tolist():
        found += [first + each for each in starting_places(reached[first : first + places], draft_tokens)]
        first += places
    return torch.tensor(found, dtype=torch.int64, device=runs.device)


def held_out_counts(trainee: Trainee, lesson: Lesson, draft_tokens: int) -> tuple[AcceptanceCounts, ...]:
    """What the averaged head would have counted on each conversation held out."""
    scaled = (trainee.scaled(each) for each in lesson.held_out)
    replayed: Iterator[Replayed] = head_replay(
        trainee.averaged, lesson.embedding, scaled, draft_tokens=draft_tokens, rows=HELD_OUT_ROWS, accept=is_named
    )
    return tuple(walk(each, draft_tokens) for each in replayed)


def folded(trainee: Trainee) -> dict[str, Tensor]:
    """The averaged head's weights as published: `fc` reads the states unscaled."""
    weights = {name: each.detach().cpu().clone() for name, each in trainee.averaged.state_dict().items()}
    fc = weights["fc.weight"].unflatten(1, (trainee.scales.shape[0], -1))
    weights["fc.weight"] = (fc * trainee.scales[:, None]).flatten(1)
    return weights


class _Run:
    """A training that can be stopped: everything that the next update depends on."""

    def __init__(self, trainee: Trainee, lesson: Lesson, settings: Settings, folder: Path, peers: Peers) -> None:
        self.trainee, self.lesson, self.settings, self.peers = trainee, lesson, settings, peers
        self.file = folder / PROGRESS
        self.named = dict(trainee.head.named_parameters())
        for each in self.named.values():
            each.grad = torch.zeros_like(each)
        matrices = [each for each in self.named.values() if each.dim() > 1]
        vectors = [each for each in self.named.values() if each.dim() <= 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
            lr=settings.learning_rate,
            betas=BETAS,
            fused=True,
        )
        self.updates_per_epoch = ceil(len(lesson.training) / settings.rows)
        self.updates = 0
        self.loss_sum = 0.0
        self.seconds = 0.0  # that the epoch's updates took so far
        self.curve: list[Epoch] = []
        self.best: dict[str, Tensor] | None = None

    @property
    def best_so_far(self) -> dict[str, Tensor]:
        """The best epoch's weights as published; an epoch must be done."""
        assert self.best is not None
        return self.best

    @property
    def updates_in_all(self) -> int:
        """Updates of the whole training."""
        return self.settings.epochs * self.updates_per_epoch

    def batches(self, epoch: int) -> list[list[Conversation]]:
        """An epoch's batches, in an order that follows from the seed: conversations of like length together, batches shuffled."""
        rng = np.random.default_rng([self.settings.seed, epoch])
        training, rows = self.lesson.training, self.settings.rows
        order = rng.permutation(len(training))
        pools = [order[at : at + SORTED_BATCHES * rows] for at in range(0, len(order), SORTED_BATCHES * rows)]
        ordered = [each for pool in pools for each in sorted(pool, key=lambda at: training[at].tokens.shape[0])]
        batches = [[training[at] for at in ordered[first : first + rows]] for first in range(0, len(ordered), rows)]
        return [batches[at] for at in rng.permutation(len(batches))]

    def learning_rate(self) -> float:
        """Of the next update: a warm-up, then half a cosine."""
        done, warm_up = self.updates, max(1, round(WARM_UP * self.updates_in_all))
        if done < warm_up:
            return self.settings.learning_rate * (done + 1) / warm_up
        share = (done - warm_up) / max(1, self.updates_in_all - warm_up)
        return self.settings.learning_rate * (LEAST_RATE + (1 - LEAST_RATE) * (1 + cos(pi * share)) / 2)

    def update(self, conversations: Sequence[Conversation]) -> None:
        """Learn from one batch."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate()
        self.optimizer.zero_grad(set_to_none=False)
        loss = self._learn(self.peers.share(conversations))
        if not isfinite(loss):
            raise BadInputError(
                f"the loss of update {self.updates + 1} is {loss}, which nothing can be learnt from; give a smaller --learning-rate "
                f"(now {self.settings.learning_rate:g}) or --weight-decay, or look for damaged weights of the target"
            )
        torch.nn.utils.clip_grad_norm_(self.named.values(), LONGEST_NORM)
        self.optimizer.step()
        self.updates += 1
        self.loss_sum += loss
        # Young averages would be the random start: they forget faster.
        keep = min(self.settings.average, self.updates / (self.updates + 10))
        with torch.no_grad():
            averaged, own = list(self.trainee.averaged.parameters()), list(self.trainee.head.parameters())
            torch._foreach_lerp_(averaged, own, 1 - keep)

    def _learn(self, share: Sequence[Conversation]) -> float:
        """Put the gradients of the whole batch in place, of which `share` is this process's; the batch's loss per place."""
        device = self.lesson.embedding.device
        total, weight = torch.zeros((), device=device), torch.zeros((), device=device)
        if share:
            total, weight = loss_of(self.trainee, self.lesson, share, self.settings)
            total.backward()
        both = torch.stack((total.detach(), weight))
        gradients = [each.grad for each in self.named.values()]
        self.peers.add_up([both, *gradients])
        for each in gradients:
            each.div_(both[1])
        return float(both[0] / both[1])

    def end_epoch(self) -> None:
        """Judge the epoch, and keep its head if it is the best."""
        tokens = sum(each.answer_tokens for each in self.lesson.training)
        point = Epoch(
            epoch=len(self.curve) + 1,
            updates=self.updates,
            loss=self.loss_sum / self.updates_per_epoch,
            learning_rate=self.learning_rate(),
            by_exchange=held_out_counts(self.trainee, self.lesson, self.settings.draft_tokens),
            answer_tokens=tokens,
            seconds=self.seconds,
        )
        self.curve.append(point)
        if best_epoch(self.curve) is point:
            self.best = folded(self.trainee)
        self.loss_sum = self.seconds = 0.0

    def save(self) -> None:
        """Keep everything, whole or not at all."""
        if not self.peers.is_first:
            return
        tensors = {f"weights.{name}": each.detach() for name, each in self.named.items()}
        tensors |= {f"averaged.{name}": each.detach() for name, each in self.trainee.averaged.named_parameters()}
        for name, parameter in self.named.items():
            for moment in MOMENTS:
                if parameter in self.optimizer.state:
                    tensors[f"{moment}.{name}"] = self.optimizer.state[parameter][moment]
        tensors |= {f"best.{name}": each for name, each in (self.best or {}).items()}
        kept = {
            "schema": SCHEMA,
            "settings": asdict(self.settings),
            "conversations": self._conversations(),
            "updates": self.updates,
            "loss_sum": self.loss_sum,
            "seconds": self.seconds,
            "curve": [{**asdict(each), "by_exchange": [astuple(own) for own in each.by_exchange]} for each in self.curve],
        }
        save_whole(tensors, self.file, metadata={"paceline": json.dumps(kept)})

    def restore(self) -> None:
        """Go on from what was kept, if anything was.

        Raises:
            BadInputError: it cannot be read, or was made with other settings.

        """
        if not self.file.exists():
            return
        try:
            need_file(self.file)
            with safe_open(self.file, framework="pt") as opened:
                kept = json.loads(opened.metadata()["paceline"])
                held = {name: opened.get_tensor(name).clone() for name in opened.keys()}  # noqa: SIM118 - not a dictionary
        except (OSError, SafetensorError, ValueError, KeyError, TypeError) as fault:
            raise BadInputError(f"{printable(str(self.file))} cannot be read: {printable(str(fault))}; delete it to start anew") from None
        if kept.get("schema") != SCHEMA:
            raise BadInputError(
                f"{printable(str(self.file))} is {printable(kept.get('schema'))}, not {SCHEMA}; delete it to start the training anew"
            )
        self._need_same(kept)
        self._load(held)
        self.updates, self.loss_sum, self.seconds = int(kept["updates"]), float(kept["loss_sum"]), float(kept["seconds"])
        self.curve = [_epoch(each) for each in kept["curve"]]

    def _need_same(self, kept: Mapping[str, Any]) -> None:
        """Nothing, where what was kept was trained as it is asked now, on the same conversations."""
        asked = asdict(self.settings)
        differing = {each: kept["settings"].get(each) for each in asked if kept["settings"].get(each) != asked[each]}
        if differing:
            before = " ".join(f"--{each.replace('_', '-')} {printable(value)}" for each, value in differing.items())
            now = ", ".join(printable(asked[each]) for each in differing)
            raise BadInputError(f"the training in {self._place} has {before}, not {now}; repeat the command with {before} {REMEDY}")
        if kept["conversations"] != self._conversations():
            raise BadInputError(
                f"the training in {self._place} has {kept['conversations']} conversations to learn from and held out, not "
                f"{self._conversations()}; repeat the command with the same --held-out {REMEDY}"
            )

    @property
    def _place(self) -> str:
        return printable(str(self.file.parent))

    def _conversations(self) -> list[int]:
        return [len(self.lesson.training), len(self.lesson.held_out)]

    def _load(self, held: Mapping[str, Tensor]) -> None:
        for name, parameter in self.named.items():
            kept = held.get(f"weights.{name}")
            if kept is None or kept.shape != parameter.shape:
                was = "missing" if kept is None else f"{list(kept.shape)}"
                raise BadInputError(
                    f"{printable(str(self.file))} is of another head: {name} is {was} there and {list(parameter.shape)} as asked; give the "
                    "same --draft-vocab, --aux-layers and --intermediate, or delete it to start anew"
                )
        with torch.no_grad():
            for name, parameter in self.named.items():
                parameter.copy_(held[f"weights.{name}"])
                moments = {each: held[f"{each}.{name}"].to(parameter.device) for each in MOMENTS if f"{each}.{name}" in held}
                if moments:
                    self.optimizer.state[parameter] = moments
            for name, parameter in self.trainee.averaged.named_parameters():
                parameter.copy_(held[f"averaged.{name}"])
        self.best = {name.removeprefix("best."): each for name, each in held.items() if name.startswith("best.")} or None


def _epoch(kept: Mapping[str, Any]) -> Epoch:
    names = [each.name for each in fields(AcceptanceCounts)]
    counted = [dict(zip(names, own, strict=True)) for own in kept["by_exchange"]]
    counts = tuple(AcceptanceCounts(**{**own, "accepted_per_position": tuple(own["accepted_per_position"])}) for own in counted)
    return Epoch(**{**kept, "by_exchange": counts})


def train(
    trainee: Trainee,
    lesson: Lesson,
    settings: Settings,
    *,
    folder: Path,
    peers: Peers,
    progress: Callable[[float], None],
    each_epoch: Callable[[Mapping[str, Tensor], Sequence[Epoch]], None],
) -> tuple[dict[str, Tensor], tuple[Epoch, ...]]:
    """The best epoch's weights as published, and the curves; goes on from what `folder` holds of this training.

    `progress` gets the updates done since it was last called, `each_epoch` the best epoch's weights and the curves so far.

    Raises:
        BadInputError: `folder` holds a training with other settings, or cannot be written to.

    """
    run = _Run(trainee, lesson, settings, folder, peers)
    run.restore()
    progress(run.updates)
    if run.curve:
        each_epoch(run.best_so_far, run.curve)  # whoever was killed may have kept the epoch and not told of it
    while len(run.curve) < settings.epochs:
        began_s = perf_counter() - run.seconds
        epoch = len(run.curve)
        done = run.updates - epoch * run.updates_per_epoch
        for batch in run.batches(epoch)[done:]:
            run.update(batch)
            progress(1)
            run.seconds = perf_counter() - began_s
            if run.updates % settings.save_every == 0:
                run.save()
        run.end_epoch()
        run.save()
        each_epoch(run.best_so_far, run.curve)
    return run.best_so_far, tuple(run.curve)
