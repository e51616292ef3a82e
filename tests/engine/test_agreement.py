"""Four witnesses of one quantity: the closed form, the simulator, neural replay and `generate` give the same tokens per step.

SmolLM2-135M answers orders and questions at temperature 0; what drafts is n-gram, an EAGLE-3 head that learnt a little, or a noisy copy of
the model.

- replay and `generate` take the same steps over the same text: equal, step by step, but for each text's last step, whose drafts replay
  judges only as far as there is text. A draft or a text may differ where two logits lie closer than rounding: at most in one text of all.
- the closed form E = 1 + coverage · Σ s_i of what was counted by position is what was counted: to 1e-12.
- the simulator's steps are independent draws: its E lies within 5.5 standard errors of the closed form (one false alarm in ten million).
- what `generate` counted and what the simulator gave lie in the 95 % bootstrap-t interval that replay states, texts being drawn whole
  (`stats.intervals`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
import torch

from paceline.engine.answers import Asked, Decoding, answer_all
from paceline.engine.chat import load_chat
from paceline.engine.drafters.draft_model import ModelDrafter
from paceline.engine.drafters.drafter import Drafter
from paceline.engine.drafters.eagle import EagleDrafter
from paceline.engine.drafters.lookup import NgramDrafter
from paceline.engine.eagle3 import Eagle3Head, LoadedEagle3
from paceline.engine.generate import acceptance_of
from paceline.engine.peers import Peers
from paceline.engine.replay import Replayed, head_replay, model_replay, starting_places, walk
from paceline.engine.states import Conversation, StatesFolder
from paceline.engine.train_eagle3.new_head import head_config, layer_scales, new_trainee
from paceline.engine.train_eagle3.training import Lesson, Settings, folded, train
from paceline.engine.train_eagle3.vocabulary import draft_vocabulary
from paceline.engine.unroll import is_named
from paceline.files.modelconfig import read_model_config
from paceline.forecast.step_cost import StepCost
from paceline.replay.ngram import NgramRule, replay
from paceline.replay.ngram_steps import ngram_steps
from paceline.run import Load
from paceline.simulate.replica import Drafting, Rejection, Replica
from paceline.simulate.server import simulate
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Method, Speculation
from paceline.stats.intervals import acceptance_estimates
from paceline.traffic.exchange import TokenStream
from paceline.workload import Request, Workload
from tests.engine.smollm import asked, model, written

PROMPTS, TOKENS, K = 10, 16, 3
AUX = (2, 15, 27)
NOISE = 0.4
RULE = NgramRule(min_tokens=1, max_tokens=4, draft_tokens=K)
ALONE = Peers(rank=0, size=1)
LESSON = Settings(
    epochs=8,
    rows=4,
    passes=K,
    draft_tokens=K,
    learning_rate=2e-3,
    weight_decay=0.01,
    pass_decay=0.9,
    elsewhere=0.3,
    average=0.5,
    save_every=1000,
    seed=5,
)
SIGMAS = 5.5
BATCH, REQUESTS = 8, 600
ROOMY = Replica(kv_blocks=2000, block_tokens=16, max_requests=BATCH, token_budget=BATCH * (K + 1))
FLAT = StepCost(
    token_s=np.concatenate(([0.0], np.ones(ROOMY.token_budget))), kv_token_s=0.0, prefill_attention_s=0.0, draft_s=np.zeros(BATCH + 1)
)


@dataclass(frozen=True, slots=True, eq=False)
class Witness:
    """What replay and `generate` say of one text: counts, and tokens accepted by step."""

    replayed: AcceptanceCounts
    replayed_steps: list[int]
    generated: AcceptanceCounts
    generated_steps: list[int]

    @property
    def agree(self) -> bool:
        """Whether the same steps were taken, the last one's acceptance aside."""
        ours, theirs = self.replayed_steps, self.generated_steps
        return len(ours) == len(theirs) and ours[:-1] == theirs[:-1] and ours[-1:] <= theirs[-1:]


@pytest.fixture(scope="module")
def conversations(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Conversation]:
    """What the model answers, with its hidden states as they are."""
    states = StatesFolder(tmp_path_factory.mktemp("states"))
    how = Decoding(hidden_layers=AUX, end_ids=load_chat(model_dir).end_ids, max_tokens=TOKENS, rows=PROMPTS, kept=torch.float32)
    questions = [Asked(number, prompt, None, stopped=False) for number, prompt in enumerate(asked(model_dir, PROMPTS))]
    answer_all(model(model_dir, 0.0), [questions], states, how, peers=ALONE, progress=lambda _: None)
    return states.read(0)


@pytest.fixture(scope="module")
def head(model_dir: Path, conversations: list[Conversation], tmp_path_factory: pytest.TempPathFactory) -> LoadedEagle3:
    """A head that saw these very texts a few times: it need not be good, only right often enough to be accepted."""
    target = model(model_dir, 0.0)
    vocabulary = draft_vocabulary((each.tokens[each.prompt_tokens :] for each in conversations), vocab=target.vocab, size=512)
    config = head_config(read_model_config(model_dir), aux_layers=AUX, draft_vocab=512, intermediate=None)
    trainee = new_trainee(config, target, vocabulary, layer_scales(conversations, len(AUX)), seed=1)
    lesson = Lesson(
        training=conversations,
        held_out=conversations[:1],
        embedding=target.embedding,
        judge=target.head[vocabulary.ids],
        can_draft=vocabulary.t2d(target.vocab),
    )
    train(
        trainee,
        lesson,
        LESSON,
        folder=tmp_path_factory.mktemp("training"),
        peers=ALONE,
        progress=lambda _: None,
        each_epoch=lambda *_: None,
    )
    made = Eagle3Head(config)
    made.load_state_dict(folded(trainee))
    return LoadedEagle3(made.eval().requires_grad_(requires_grad=False), target.embedding)


def by_replay(replayed: Iterator[Replayed]) -> Iterator[tuple[AcceptanceCounts, list[int]]]:
    """Counts and tokens accepted by step, of each text."""
    for each in replayed:
        yield walk(each, K), np.minimum(each.runs[starting_places(each.runs, K)], K).tolist()


def by_lookup(conversations: list[Conversation]) -> Iterator[tuple[AcceptanceCounts, list[int]]]:
    """The same, of the n-gram rule."""
    for each in conversations:
        prompt, output = np.split(each.tokens.numpy().astype(np.int32), [each.prompt_tokens])
        stream = TokenStream(id=str(each.number), segment="all", prompt=prompt, output=output, stopped=each.stopped)
        yield replay(stream, RULE), ngram_steps(stream, RULE).accepted.tolist()


@pytest.fixture(scope="module", params=["n-gram", "EAGLE-3", "draft model"])
def witnesses(request: pytest.FixtureRequest, model_dir: Path, conversations: list[Conversation]) -> list[Witness]:
    """Both witnesses of every text, by one way of drafting."""
    target = model(model_dir, 0.0)
    if request.param == "n-gram":
        drafter: Drafter = NgramDrafter(RULE)
        replayed = by_lookup(conversations)
    elif request.param == "EAGLE-3":
        loaded = request.getfixturevalue("head")
        drafter = EagleDrafter(loaded, draft_tokens=K, tree=None, temperature=0.0)
        replayed = by_replay(head_replay(loaded.head, loaded.embedding, conversations, draft_tokens=K, rows=PROMPTS, accept=is_named))
    else:
        noisy = model(model_dir, NOISE)
        drafter = ModelDrafter(noisy, draft_tokens=K, temperature=0.0, vocab=target.vocab)
        rng = np.random.default_rng(1)
        replayed = by_replay(
            model_replay(noisy, conversations, draft_tokens=K, rows=PROMPTS, temperature=None, rng=rng, output_head=target.head)
        )
    made = written(model_dir, drafter, asked(model_dir, PROMPTS), tokens=TOKENS)
    return [
        Witness(counts, steps, acceptance_of(each, positions=K), [len(step.accepted) for step in each.steps])
        for (counts, steps), each in zip(replayed, made, strict=True)
    ]


def test_replay_takes_the_steps_that_generation_takes(witnesses: list[Witness]) -> None:
    """A head would be bought for an acceptance that no server will see."""
    assert sum(not each.agree for each in witnesses) <= 1
    pooled = AcceptanceCounts.pooled(each.generated for each in witnesses)
    assert 0.02 < pooled.alpha < 0.98, "nothing was accepted, or nothing refused, so nothing was compared"
    assert pooled.drafts > 30


def test_the_closed_form_gives_the_tokens_per_step_that_were_counted(witnesses: list[Witness]) -> None:
    """Every forecast rests on E = 1 + coverage · Σ s_i."""
    for counts in (
        AcceptanceCounts.pooled(each.replayed for each in witnesses),
        AcceptanceCounts.pooled(each.generated for each in witnesses),
    ):
        assert Acceptance.from_counts(counts, draft_tokens=K).tokens_per_step == pytest.approx(counts.tokens_per_step, rel=1e-12)


def simulated(acceptance: Acceptance) -> AcceptanceCounts:
    """What the simulator counts where every step is drawn from that acceptance."""
    requests = tuple(Request(id=str(i), arrived_at_s=0.0, prompt_tokens=1, output_tokens=TOKENS, segment="all") for i in range(REQUESTS))
    drafting = Drafting(
        speculation=Speculation(method=Method.EAGLE3, draft_tokens=K, tree=None),
        acceptance={"all": acceptance},
        spread=0.0,
        rejection=Rejection.IN_PASS,
    )
    run = simulate(
        Workload(requests=requests, source="agreement", seed=None),
        replica=ROOMY,
        step_cost=FLAT,
        drafting=drafting,
        load=Load(concurrency=BATCH, rate_per_s=None),
        seed=3,
    )
    return run.acceptance


def test_simulator_and_generation_lie_within_what_replay_states(witnesses: list[Witness]) -> None:
    """Whoever sizes a fleet by simulation would get another speed-up than whoever replays, and than the server gives."""
    stated = acceptance_estimates([each.replayed for each in witnesses], confidence=0.95, rng=np.random.default_rng(2))["tokens_per_step"]
    acceptance = Acceptance.from_counts(AcceptanceCounts.pooled(each.replayed for each in witnesses), draft_tokens=K)
    counts = simulated(acceptance)
    survival = [acceptance.coverage * each for each in acceptance.survival]
    spread = sqrt(sum((2 * i - 1) * each for i, each in enumerate(survival, 1)) - sum(survival) ** 2)  # E[accepted²] = Σ (2i − 1) s_i
    assert counts.steps is not None
    assert counts.tokens_per_step == pytest.approx(acceptance.tokens_per_step, abs=SIGMAS * spread / sqrt(counts.steps))
    assert stated.low is not None
    assert stated.high is not None
    generated = AcceptanceCounts.pooled(each.generated for each in witnesses).tokens_per_step
    for said in (counts.tokens_per_step, generated, acceptance.tokens_per_step):
        assert stated.low <= said <= stated.high
