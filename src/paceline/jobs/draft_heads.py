"""Training a draft head on one's own traffic, and replaying a head or a draft model on it.

A training folder:

    config.json, model.safetensors   the head of the best epoch so far, as vLLM and SGLang load it
    curves.json                      loss, and held-out acceptance as counts, after every epoch
    report.html                      the same as a page with plots
    training/                        the target's answers and states, and the training's own state: what --resume goes on from
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

import numpy as np
import torch

import paceline
from paceline.engine.checkpoint import open_checkpoint
from paceline.engine.config_sizes import nested_size
from paceline.engine.eagle3 import eagle3_config, load_eagle3
from paceline.engine.peers import Peers, find_peers
from paceline.engine.replay import Replayed, by_chance, head_replay, model_replay, walk
from paceline.engine.speculators_data import data_set_library, final_gain, write_speculators_data
from paceline.engine.states import Conversation
from paceline.engine.target import load_target
from paceline.engine.train_eagle3.export import export_head
from paceline.engine.train_eagle3.new_head import head_config, layer_scales, new_trainee
from paceline.engine.train_eagle3.training import Lesson, Settings, train
from paceline.engine.train_eagle3.vocabulary import DraftVocabulary, draft_vocabulary
from paceline.engine.unroll import is_named
from paceline.errors import BadInputError, printable
from paceline.files.folder_lock import only_writer
from paceline.files.modelconfig import read_model_config
from paceline.files.modeldir import weights_fingerprint
from paceline.files.whole import make_folder, remove_unfinished, write_text
from paceline.jobs.target_states import STATES, Bar, LogAsked, SeenLog, Step, see_log
from paceline.report.head_page import head_html
from paceline.report.heads import epoch_dict
from paceline.servers.eagle_head import default_auxiliary_layers
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Method
from paceline.speculation.trained_head import Epoch, SpeculatorsData, TrainedHead, best_epoch

__all__ = ["Drafting", "HeadAsked", "neural_replay", "prepare_for_speculators", "train_head"]

WORK, CURVES, PAGE = "training", "curves.json", "report.html"
CURVES_SCHEMA = "paceline.eagle3-curves/1"
SCALED_CONVERSATIONS = 64
REPLAY_ROWS = 16
LEAST_CONVERSATIONS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadAsked:
    """What head is to be trained on which log.

    Attributes:
        log: with the target.
        aux_layers: layers of the target that the head reads, None for the usual three.
        draft_vocab: most tokens that the head can draft; fewer where the target's vocabulary is smaller.
        intermediate: size within the head's feed-forward, None for the target's.
        held_out: share of the conversations that are held out.
        confidence: of the intervals on the page.
        settings: of the training.

    """

    log: LogAsked
    aux_layers: tuple[int, ...] | None
    draft_vocab: int
    intermediate: int | None
    held_out: float
    confidence: float
    settings: Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """What is replayed: a method with its draft folder, at K. `temperature` is None for a server that drafts by argmax."""

    method: Method
    draft: Path
    draft_tokens: int
    temperature: float | None
    seed: int


@dataclass(frozen=True, slots=True, eq=False)
class _Prepared:
    """A log that is ready to be learnt from: its target's states, which conversations train and which judge, and what can be drafted."""

    seen: SeenLog
    layers: tuple[int, ...]
    training: list[Conversation]
    held_out: list[Conversation]
    vocabulary: DraftVocabulary

    @property
    def answer_tokens(self) -> int:
        """Trained on in an epoch."""
        return sum(each.answer_tokens for each in self.training)


def train_head(asked: HeadAsked, out: Path, *, resume: bool, step: Step, bar: Bar) -> TrainedHead | None:
    """Train a head in `out` and export it there; `bar` makes a progress bar of a name and a total.

    Of several processes the first tells and writes; the others get None.

    Raises:
        BadInputError: the target, the log or a setting cannot be used, or `out` is in use and `resume` was not asked for.
        NoEvidenceError: the log has nothing to learn from.

    """
    peers = find_peers()
    step, bar = _heard(peers, step, bar)
    with _training_alone(out, peers, resume=resume):
        return _trained(asked, out, peers, step=step, bar=bar)


def _trained(asked: HeadAsked, out: Path, peers: Peers, *, step: Step, bar: Bar) -> TrainedHead | None:
    prepared = _prepared(asked, out, step=step, bar=bar)
    target, vocabulary = prepared.seen.target, prepared.vocabulary
    config = read_model_config(asked.log.target)
    sizes = head_config(config, aux_layers=prepared.layers, draft_vocab=vocabulary.ids.shape[0], intermediate=asked.intermediate)
    scales = layer_scales(prepared.training[:SCALED_CONVERSATIONS], len(prepared.layers))
    trainee = new_trainee(sizes, target, vocabulary, scales, seed=asked.settings.seed)
    lesson = Lesson(
        training=prepared.training,
        held_out=prepared.held_out,
        embedding=target.embedding.float(),
        judge=target.head[vocabulary.ids].float(),
        can_draft=vocabulary.t2d(target.vocab),
    )

    def tell(best: Mapping[str, torch.Tensor], points: Sequence[Epoch]) -> None:
        export_head(best, vocabulary, sizes, target=config, dtype=torch.bfloat16, folder=out)
        _write_curves(points, asked, out)

    step(f"training on {len(prepared.training)} conversations, {prepared.answer_tokens:,} answer tokens")
    weights, curves = train(
        trainee,
        lesson,
        asked.settings,
        folder=out / WORK,
        peers=peers,
        progress=bar("training", asked.settings.epochs * ceil(len(prepared.training) / asked.settings.rows)),
        each_epoch=tell if peers.is_first else _untold,
    )
    peers.wait()
    return _told(prepared, weights, curves) if peers.is_first else None


def prepare_for_speculators(asked: HeadAsked, out: Path, data: Path, *, resume: bool, step: Step, bar: Bar) -> SpeculatorsData | None:
    """Prepare a training in `out` as `train_head` does, and write it to `data` for the speculators library instead of training.

    Raises:
        BadInputError: as for `train_head`; or `data` is in use, `datasets` is not installed, or the library cannot use this target.
        NoEvidenceError: the log has nothing to learn from.

    """
    data_set_library()
    if data.exists() and any(data.iterdir()):
        raise BadInputError(f"{printable(str(data))} is not empty; give --for-speculators another folder")
    gain = final_gain(open_checkpoint(asked.log.target))
    peers = find_peers()
    step, bar = _heard(peers, step, bar)
    with _training_alone(out, peers, resume=resume):
        prepared = _prepared(asked, out, step=step, bar=bar)
        if not peers.is_first:
            return None
        step(f"writing to {data.name}")
        conversations = [*prepared.training, *prepared.held_out]
        rng = np.random.default_rng(asked.settings.seed)
        write_speculators_data(conversations, prepared.vocabulary, vocab=prepared.seen.target.vocab, gain=gain, folder=data, rng=rng)
    return SpeculatorsData(
        rows=len(conversations),
        answer_tokens=sum(each.answer_tokens for each in conversations),
        left_out=prepared.seen.left_out,
        longest_tokens=max(each.tokens.shape[0] - 1 for each in conversations),
        draft_vocab=prepared.vocabulary.ids.shape[0],
        coverage=prepared.vocabulary.coverage,
        aux_layers=prepared.layers,
        inputs=prepared.seen.inputs,
    )


@contextmanager
def _training_alone(out: Path, peers: Peers, *, resume: bool) -> Iterator[None]:
    """A block in which this training alone writes into its folder, and into the states that may be linked from there."""
    if out.exists() and any(out.iterdir()) and not resume:
        raise BadInputError(f"{printable(str(out))} is not empty; give --resume to go on with the training in it, or another folder")
    peers.wait()  # or the first process had made the folder before another looks
    with ExitStack() as held:
        if peers.is_first:
            for each in (out, out / WORK / STATES):
                held.enter_context(_only_writer(each, verb="train-eagle3", option="--out"))
            remove_unfinished(out)
        peers.wait()
        yield


@contextmanager
def _only_writer(folder: Path, *, verb: str, option: str) -> Iterator[None]:
    """As `only_writer`, of a folder that is made where there is none."""
    make_folder(folder)
    with only_writer(folder, verb=verb, option=option):
        yield


def _prepared(asked: HeadAsked, out: Path, *, step: Step, bar: Bar) -> _Prepared:
    seen = see_log(asked.log, readers=(), aux_layers=asked.aux_layers, folder=out / WORK, step=step, bar=bar)
    training, held_out = _split(seen, share=asked.held_out, seed=asked.settings.seed)
    answers = (each.tokens[each.prompt_tokens :] for each in training)
    return _Prepared(
        seen=seen,
        layers=asked.aux_layers or default_auxiliary_layers(seen.target.layers),
        training=training,
        held_out=held_out,
        vocabulary=draft_vocabulary(answers, vocab=seen.target.vocab, size=min(asked.draft_vocab, seen.target.vocab)),
    )


def _told(prepared: _Prepared, weights: Mapping[str, torch.Tensor], curves: tuple[Epoch, ...]) -> TrainedHead:
    return TrainedHead(
        curves=curves,
        best=best_epoch(curves),
        parameters=sum(each.numel() for name, each in weights.items() if name != "d2t"),
        draft_vocab=prepared.vocabulary.ids.shape[0],
        coverage=prepared.vocabulary.coverage,
        aux_layers=prepared.layers,
        conversations=len(prepared.training),
        held_out_conversations=len(prepared.held_out),
        left_out=prepared.seen.left_out,
        answer_tokens=prepared.answer_tokens,
        inputs=prepared.seen.inputs,
    )


def _split(seen: SeenLog, *, share: float, seed: int) -> tuple[list[Conversation], list[Conversation]]:
    """Conversations to train on, and others held out; all turns of one line of the log are on one side."""
    usable = [each for each in seen.conversations() if each.answer_tokens > 1]
    lines = [seen.exchanges[each.number].id.rpartition(".")[0] for each in usable]
    names = sorted(set(lines))
    if len(names) < LEAST_CONVERSATIONS:
        raise BadInputError(f"{len(names)} conversations with an answer of two tokens or more are too few to train on and hold some out")
    picked = np.random.default_rng(seed).permutation(len(names))[: max(1, round(share * len(names)))]
    if picked.size == len(names):
        raise BadInputError(f"--held-out {share:g} leaves none of {len(names)} conversations to train on; give a smaller share")
    out = {names[each] for each in picked}
    training = [each for each, line in zip(usable, lines, strict=True) if line not in out]
    return training, [each for each, line in zip(usable, lines, strict=True) if line in out]


def _write_curves(points: Sequence[Epoch], asked: HeadAsked, out: Path) -> None:
    document = {"schema": CURVES_SCHEMA, "epochs": [epoch_dict(each) for each in points]}
    write_text(out / CURVES, json.dumps(document, indent=2, allow_nan=False) + "\n")
    page = head_html(
        points,
        title=f"An EAGLE-3 head for {asked.log.target.name}",
        planned=asked.settings.epochs,
        version=paceline.__version__,
        confidence=asked.confidence,
        rng=np.random.default_rng(asked.settings.seed),
    )
    write_text(out / PAGE, page)


def _untold(_best: Mapping[str, torch.Tensor], _points: Sequence[Epoch]) -> None:
    """What a process does after an epoch that another tells of."""


def _heard(peers: Peers, step: Step, bar: Bar) -> tuple[Step, Bar]:
    """How this process tells of its work; not at all, where another tells of what both do."""
    return (step, bar) if peers.is_first else (lambda _said: None, lambda _name, _total: lambda _done: None)


def neural_replay(
    asked: LogAsked,
    drafting: Drafting,
    *,
    folder: Path,
    step: Step,
    bar: Bar,
) -> tuple[dict[str, tuple[AcceptanceCounts, ...]], SeenLog]:
    """What the draft would have drafted on the log, as counts of each exchange by segment; the states are kept in `folder`.

    Raises:
        BadInputError: the target, the draft or the log cannot be used.
        NoEvidenceError: the log's own answers were asked for and some exchange has none.

    """
    aux = None
    if drafting.method is Method.EAGLE3:
        target_layers = nested_size(open_checkpoint(asked.target).config, "num_hidden_layers")
        aux = eagle3_config(open_checkpoint(drafting.draft).config, target_layers=target_layers).aux_layers
    # A head's own positions are not its limit: servers give it the target's.
    readers = (drafting.draft,) if drafting.method is Method.DRAFT_MODEL else ()
    with _only_writer(folder / STATES, verb="replay", option="--states"):
        seen = see_log(asked, readers=readers, aux_layers=aux, folder=folder, step=step, bar=bar)
        usable = (each for each in seen.conversations() if each.answer_tokens > 1)
        step(f"replaying {drafting.draft.name}")
        progress = bar("replaying", seen.kept)
        groups: dict[str, list[AcceptanceCounts]] = {}
        for each in _replayed(seen, usable, drafting):
            groups.setdefault(seen.exchanges[each.number].segment, []).append(walk(each, drafting.draft_tokens))
            progress(1)
    inputs = {**seen.inputs, drafting.draft.resolve().name: weights_fingerprint(drafting.draft)}
    return {name: tuple(counts) for name, counts in sorted(groups.items())}, replace(seen, inputs=inputs)


def _replayed(seen: SeenLog, conversations: Iterable[Conversation], drafting: Drafting) -> Iterator[Replayed]:
    rng = np.random.default_rng(drafting.seed)
    output_head = seen.target.head.float()
    if drafting.method is Method.EAGLE3:
        loaded = load_eagle3(drafting.draft, seen.target)
        accept = is_named if drafting.temperature is None else by_chance(output_head, temperature=drafting.temperature, rng=rng)
        return head_replay(
            loaded.head, loaded.embedding, conversations, draft_tokens=drafting.draft_tokens, rows=REPLAY_ROWS, accept=accept
        )
    model = load_target(drafting.draft, dtype=seen.target.dtype, device=seen.target.device)
    if model.vocab != seen.target.vocab:
        raise BadInputError(
            f"the draft model's vocabulary has {model.vocab} tokens, the target's {seen.target.vocab}; both need the same tokenizer"
        )
    return model_replay(
        model,
        conversations,
        draft_tokens=drafting.draft_tokens,
        rows=REPLAY_ROWS,
        temperature=drafting.temperature,
        rng=rng,
        output_head=output_head,
    )
