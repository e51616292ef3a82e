"""A head unrolled over whole texts drafts what it drafts one step at a time; a walk over its runs counts what generation counts."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from paceline.engine.answers import Asked, Decoding, answer_all
from paceline.engine.drafters.draft_model import ModelDrafter
from paceline.engine.drafters.drafter import Drafter
from paceline.engine.drafters.eagle import EagleDrafter
from paceline.engine.eagle3 import LoadedEagle3, load_eagle3
from paceline.engine.generate import Generation, acceptance_of, generate
from paceline.engine.peers import Peers
from paceline.engine.replay import Replayed, by_chance, head_replay, model_replay, runs_of_hits, walk
from paceline.engine.sampling import Sampling
from paceline.engine.speculative_sampling import Generated
from paceline.engine.states import Conversation, StatesFolder
from paceline.engine.target import Target, load_target
from paceline.engine.unroll import Drafted, batch_of, is_named, unroll
from paceline.speculation.counts import AcceptanceCounts
from tests.engine.tiny import CPU, eagle3_folder, model_folder, tiny_target

GREEDY = Sampling(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0)
NO_STOPS: frozenset[int] = frozenset()
LAYERS = (0, 2, 4)
K = 3
TOKENS = 25


def decoding(*, rows: int, max_tokens: int = TOKENS, end_ids: frozenset[int] = NO_STOPS) -> Decoding:
    return Decoding(hidden_layers=LAYERS, end_ids=end_ids, max_tokens=max_tokens, rows=rows, kept=torch.float64)


def prompts(count: int, *, vocab: int) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(3)
    return [tuple(rng.integers(0, vocab, int(rng.integers(2, 9))).tolist()) for _ in range(count)]


def answered(target: Target, folder: Path, asked: list[Asked], how: Decoding) -> list[Conversation]:
    folder.mkdir(exist_ok=True)
    answer_all(target, [asked], StatesFolder(folder), how, peers=Peers(rank=0, size=1), progress=lambda _: None)
    return StatesFolder(folder).read(0)


def questions(count: int, *, vocab: int) -> list[Asked]:
    return [Asked(number, prompt, None, stopped=False) for number, prompt in enumerate(prompts(count, vocab=vocab))]


def generated(target: Target, drafter: Drafter | None, prompt: tuple[int, ...]) -> Generation:
    made = Generation(prompt)
    for _ in generate(target, drafter, [made], sampling=GREEDY, most_tokens=TOKENS, stops=NO_STOPS, chances=[Generated(1)]):
        pass
    return made


@pytest.fixture
def target() -> Target:
    """A target of random weights."""
    return tiny_target()


@pytest.fixture
def head(tmp_path: Path, target: Target) -> LoadedEagle3:
    """A head of random weights that can draft every token."""
    return load_eagle3(eagle3_folder(tmp_path / "head", draft_vocab_size=7), target)


def test_answers_are_the_targets_own_whoever_shares_their_pass(tmp_path: Path, target: Target) -> None:
    """A head would be trained on what the target never says."""
    asked = questions(7, vocab=target.vocab)
    for rows in (1, 3, 7):
        found = answered(target, tmp_path / str(rows), asked, decoding(rows=rows))
        assert [each.tokens.tolist() for each in found] == [[*each.prompt, *generated(target, None, each.prompt).output] for each in asked]


def test_states_of_an_answer_are_those_of_reading_it(tmp_path: Path, target: Target) -> None:
    """Somebody with logged answers would train another head than somebody whose target answers the same."""
    written = answered(target, tmp_path / "written", questions(5, vocab=target.vocab), decoding(rows=2))
    logged = [
        Asked(
            each.number, tuple(each.tokens[: each.prompt_tokens].tolist()), tuple(each.tokens[each.prompt_tokens :].tolist()), stopped=False
        )
        for each in written
    ]
    for own, read in zip(written, answered(target, tmp_path / "read", logged, decoding(rows=3)), strict=True):
        assert own.tokens.tolist() == read.tokens.tolist()
        assert own.aux.shape == (own.tokens.shape[0] - 1, 3 * target.hidden)
        torch.testing.assert_close(own.aux, read.aux)
        torch.testing.assert_close(own.features, read.features)


def test_an_answer_ends_with_the_token_that_ends_it(tmp_path: Path, target: Target) -> None:
    """The head would never learn to draft the end, and what was cut would count as ended."""
    plain = answered(target, tmp_path / "plain", questions(4, vocab=target.vocab), decoding(rows=4))
    end = int(plain[0].tokens[plain[0].prompt_tokens + 3])
    ended = answered(target, tmp_path / "ended", questions(4, vocab=target.vocab), decoding(rows=4, end_ids=frozenset({end})))
    for whole, cut in zip(plain, ended, strict=True):
        output = whole.tokens[whole.prompt_tokens :].tolist()
        assert cut.stopped == (end in output)
        assert cut.tokens[cut.prompt_tokens :].tolist() == (output[: output.index(end) + 1] if end in output else output)


def test_what_is_on_disk_is_not_computed_again(tmp_path: Path, target: Target) -> None:
    """Whoever goes on after a crash would pay for everything once more."""
    asked = questions(3, vocab=target.vocab)
    before = answered(target, tmp_path / "states", asked, decoding(rows=2))
    after = answered(target, tmp_path / "states", asked, decoding(rows=2, max_tokens=5))
    assert [each.tokens.tolist() for each in before] == [each.tokens.tolist() for each in after]


@pytest.mark.parametrize("name", ["head", "model"])
def test_replay_counts_what_generation_counts(tmp_path: Path, target: Target, head: LoadedEagle3, name: str) -> None:
    """A head would be bought for an acceptance that no server will see."""
    asked = questions(8, vocab=target.vocab)
    conversations = answered(target, tmp_path / "states", asked, decoding(rows=5))
    model = load_target(model_folder(tmp_path / "draft", initializer_range=0.5), dtype=torch.float64, device=CPU)
    if name == "head":
        drafter: Drafter = EagleDrafter(head, draft_tokens=K, tree=None, temperature=0.0)
        replayed = list(head_replay(head.head, head.embedding, conversations, draft_tokens=K, rows=5, accept=is_named))
    else:
        drafter = ModelDrafter(model, draft_tokens=K, temperature=0.0, vocab=target.vocab)
        replayed = list(
            model_replay(
                model,
                conversations,
                draft_tokens=K,
                rows=5,
                temperature=None,
                rng=np.random.default_rng(1),
                output_head=target.head,
            )
        )
    whole = AcceptanceCounts.none()
    for each, own in zip(asked, replayed, strict=True):
        made = generated(target, drafter, each.prompt)
        counted, walked = acceptance_of(made, positions=K), walk(own, K)
        assert walked.steps == counted.steps
        # the last step's draft is judged by the text only as far as there is text
        assert counted.accepted_tokens - walked.accepted_tokens in range(K + 1)
        whole += walked
    assert 0.02 < whole.alpha < 0.98


def causal(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Attention as a text has it."""
    attended = functional.scaled_dot_product_attention(queries[None], keys[None], values[None], is_causal=True, enable_gqa=True)
    return attended[0].transpose(0, 1).flatten(1)


def drafted_alone(head: LoadedEagle3, each: Conversation, row: int, passes: int) -> torch.Tensor:
    """The last pass's logits of the step at `row`, each pass run over everything before it."""
    hidden = head.head.fuse(each.aux[: row + 1])
    for ahead in range(passes):
        tokens = each.tokens[1 : row + 2 + ahead]
        made = head.head(head.embedding[tokens], hidden, positions=torch.arange(tokens.shape[0]), attend=causal)
        hidden = torch.cat((hidden, made[-1:]))
    return head.head.draft_logits(hidden[-1])


def test_a_step_unrolled_beside_others_is_the_step_run_alone(tmp_path: Path, target: Target, head: LoadedEagle3) -> None:
    """Every step would be drafted, and the head trained, at other positions or with others' guesses in sight."""
    conversations = answered(target, tmp_path / "states", questions(3, vocab=target.vocab), decoding(rows=3, max_tokens=7))
    batch = batch_of(conversations, like=head.embedding)
    rng = np.random.default_rng(4)
    some = lambda _, drafted: torch.from_numpy(rng.random(drafted.wanted.shape[0]) < 0.8)  # noqa: E731 - a stand-in for acceptance
    first_rows = [0, *np.cumsum([each.tokens.shape[0] - 1 for each in conversations])]
    compared = 0
    for number, made in enumerate(unroll(head.head, head.embedding, batch, draft_tokens=4, accept=some), 1):
        for step, logits in zip(made.steps.tolist(), made.drafted.logits, strict=True):
            row = int(batch.starts[step])
            owner = int(batch.conversation[row])
            alone = drafted_alone(head, conversations[owner], row - int(first_rows[owner]), number)
            torch.testing.assert_close(logits, alone)
            compared += number > 2
    assert compared > 5


def test_one_pass_over_a_text_serves_every_draft_length(head: LoadedEagle3, target: Target, tmp_path: Path) -> None:
    """A sweep over K would need a replay for each."""
    conversations = answered(target, tmp_path / "states", questions(4, vocab=target.vocab), decoding(rows=4))
    longest = list(head_replay(head.head, head.embedding, conversations, draft_tokens=5, rows=2, accept=is_named))
    for draft_tokens in (1, 2, 4):
        own = head_replay(head.head, head.embedding, conversations, draft_tokens=draft_tokens, rows=3, accept=is_named)
        assert [walk(each, draft_tokens) for each in own] == [walk(each, draft_tokens) for each in longest]


def test_a_walk_starts_behind_what_was_accepted() -> None:
    """Counting every place as a start says .67 where a server measures .55."""
    runs = np.array([3, 0, 9, 1, 0, 2, 1, 0])
    cut = walk(Replayed(number=0, runs=runs, output_tokens=9, stopped=False), 3)
    # starts at 0 (accepts 3), 4 (0), 5 (2); at 5 three tokens are left, and three drafts are judged
    assert cut == AcceptanceCounts(steps=3, drafts=3, drafted_tokens=9, accepted_tokens=5, accepted_per_position=(2, 2, 1))
    # two tokens are left at 4 and one at 5, and a log that was cut judges no more drafts than that
    short = np.array([3, 0, 1, 1, 0, 1])
    assert walk(Replayed(number=0, runs=short, output_tokens=7, stopped=False), 3).drafted_tokens == 3 + 2 + 1
    assert walk(Replayed(number=0, runs=short, output_tokens=7, stopped=True), 3).drafted_tokens == 9
    assert walk(Replayed(number=0, runs=runs[:0], output_tokens=1, stopped=True), 3).steps == 0


def test_runs_are_hits_without_a_miss() -> None:
    """A draft behind a rejected one would count as accepted."""
    hits = np.array([True, True, False, True, True, True, True])
    assert runs_of_hits(hits, 3).tolist() == [2, 1, 0, 3, 3, 2, 1]


def test_drawn_drafts_are_accepted_as_speculative_sampling_accepts_them(target: Target, head: LoadedEagle3) -> None:
    """Acceptance at a temperature would be that of another law: Σ min(p, q) is its mean over the target's own tokens."""
    temperature, draws = 0.8, 20_000
    rng, generator = np.random.default_rng(7), torch.Generator().manual_seed(2)
    features = torch.randn(target.hidden, dtype=torch.float64, generator=generator)
    logits = torch.randn(7, dtype=torch.float64, generator=generator)
    law = torch.softmax(target.head @ features / temperature, -1)
    draft = torch.softmax(logits / temperature, -1)
    expected = float(torch.minimum(law, draft[_draft_ids(head)]).sum())
    texts = torch.from_numpy(rng.choice(7, size=draws, p=law.numpy()))
    drafted = Drafted(logits.expand(draws, -1), wanted=texts, features=features.expand(draws, -1))
    share = float(by_chance(target.head, temperature=temperature, rng=rng)(head.head, drafted).double().mean())
    assert 0.05 < expected < 0.95
    assert abs(share - expected) < 5 * (0.25 / draws) ** 0.5


def _draft_ids(head: LoadedEagle3) -> torch.Tensor:
    """The draft id of each of the target's tokens."""
    return head.head.target_ids(torch.arange(7)).argsort()
