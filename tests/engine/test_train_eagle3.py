"""A head is trained from states, survives being killed, and is exported as servers load it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from paceline.engine.answers import Asked, Decoding, answer_all
from paceline.engine.eagle3 import Eagle3Config, eagle3_config, load_eagle3
from paceline.engine.peers import Peers
from paceline.engine.replay import head_replay, walk
from paceline.engine.states import Conversation, StatesFolder, open_states, save_whole
from paceline.engine.target import Target, load_target
from paceline.engine.train_eagle3.export import export_head, published_config
from paceline.engine.train_eagle3.new_head import head_config, layer_scales, new_trainee
from paceline.engine.train_eagle3.training import Lesson, Settings, Trainee, folded, held_out_counts, loss_of, train
from paceline.engine.train_eagle3.vocabulary import DraftVocabulary, draft_vocabulary
from paceline.engine.unroll import batch_of, is_named, unroll
from paceline.errors import BadInputError
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.trained_head import Epoch
from tests.engine.tiny import CPU, SIZES, model_folder

ALONE = Peers(rank=0, size=1)
AUX = (1, 2, 3)
CONFIG = {**SIZES, "rms_norm_eps": 1e-6, "eos_token_id": 2}
SETTINGS = Settings(
    epochs=3,
    rows=3,
    passes=4,
    draft_tokens=3,
    learning_rate=0.01,
    weight_decay=0.01,
    pass_decay=0.9,
    elsewhere=0.3,
    average=0.9,
    save_every=2,
    seed=5,
)


class KilledError(Exception):
    """Stands for the end of the process."""


@pytest.fixture
def target(tmp_path: Path) -> Target:
    """A target of random weights."""
    return load_target(model_folder(tmp_path / "target"), dtype=torch.float32, device=CPU)


@pytest.fixture
def conversations(tmp_path: Path, target: Target) -> list[Conversation]:
    """What it answers to every pair of tokens."""
    asked = [Asked(number, (number % 7, number // 7 + 1), None, stopped=False) for number in range(21)]
    states = StatesFolder(tmp_path)
    decoding = Decoding(hidden_layers=AUX, end_ids=frozenset(), max_tokens=16, rows=21, kept=torch.bfloat16)
    answer_all(target, [asked], states, decoding, peers=ALONE, progress=lambda _: None)
    return states.read(0)


def lesson_of(target: Target, conversations: list[Conversation]) -> tuple[Trainee, Lesson, DraftVocabulary]:
    vocabulary = draft_vocabulary((each.tokens[each.prompt_tokens :] for each in conversations), vocab=target.vocab, size=5)
    config = head_config(CONFIG, aux_layers=AUX, draft_vocab=5, intermediate=None)
    trainee = new_trainee(config, target, vocabulary, layer_scales(conversations, 3), seed=1)
    lesson = Lesson(
        training=conversations[5:],
        held_out=conversations[:5],
        embedding=target.embedding,
        judge=target.head[vocabulary.ids],
        can_draft=vocabulary.t2d(target.vocab),
    )
    return trainee, lesson, vocabulary


def trained(
    target: Target, conversations: list[Conversation], folder: Path, settings: Settings, progress: Callable[[float], None]
) -> tuple[dict[str, Tensor], tuple[Epoch, ...]]:
    trainee, lesson, _ = lesson_of(target, conversations)
    folder.mkdir(exist_ok=True)
    return train(trainee, lesson, settings, folder=folder, peers=ALONE, progress=progress, each_epoch=lambda *_: None)


def test_training_teaches_what_the_target_writes(tmp_path: Path, target: Target, conversations: list[Conversation]) -> None:
    """Forty minutes would be spent on a head that drafts as before."""
    trainee, lesson, _ = lesson_of(target, conversations)
    before = AcceptanceCounts.pooled(held_out_counts(trainee, lesson, 3))
    settings = replace(SETTINGS, epochs=12)
    _, curves = train(trainee, lesson, settings, folder=tmp_path, peers=ALONE, progress=lambda _: None, each_epoch=lambda *_: None)
    assert curves[-1].loss < curves[0].loss
    assert max(each.held_out.alpha for each in curves) > before.alpha + 0.1


def test_every_draft_is_taught_what_the_target_knew_at_its_place(target: Target, conversations: list[Conversation]) -> None:
    """Later drafts would be taught the distribution of another token, and accepted ever less."""
    trainee, lesson, _ = lesson_of(target, conversations)
    own, places = loss_of(trainee, lesson, conversations, replace(SETTINGS, pass_decay=1.0, elsewhere=1.0))
    batch = batch_of([trainee.scaled(each) for each in conversations], like=target.embedding)
    wanted, passes = torch.zeros(()), 0
    for each in unroll(trainee.head, target.embedding, batch, draft_tokens=SETTINGS.passes, accept=is_named):
        known = (each.drafted.features @ lesson.judge.T).softmax(-1)
        entropy = -(known * each.drafted.logits.log_softmax(-1)).sum(-1)
        wanted = wanted + entropy[lesson.can_draft[each.drafted.wanted]].sum()
        passes += 1
    assert (passes, int(places)) == (SETTINGS.passes, batch.starts.shape[0])
    torch.testing.assert_close(own, wanted)


@pytest.mark.parametrize("updates", [1, 4, 9])
def test_a_killed_training_goes_on_to_the_same_head(
    tmp_path: Path, target: Target, conversations: list[Conversation], updates: int
) -> None:
    """A night's work would end in another head, and nobody could say which one was measured."""
    done = 0.0

    def killing(new: float) -> None:
        nonlocal done
        done += new
        if done >= updates:
            raise KilledError

    whole, curves = trained(target, conversations, tmp_path / "whole", SETTINGS, lambda _: None)
    with pytest.raises(KilledError):
        trained(target, conversations, tmp_path / "killed", SETTINGS, killing)
    resumed, again = trained(target, conversations, tmp_path / "killed", SETTINGS, lambda _: None)
    assert [replace(each, seconds=0.0) for each in again] == [replace(each, seconds=0.0) for each in curves]
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_a_training_that_was_killed_before_it_told_of_an_epoch_tells_of_it(
    tmp_path: Path, target: Target, conversations: list[Conversation]
) -> None:
    """The curves in the report would end an epoch before the head that lies beside them."""

    def dying(*_: object) -> None:
        raise KilledError

    settings = replace(SETTINGS, epochs=1)
    trainee, lesson, _ = lesson_of(target, conversations)
    with pytest.raises(KilledError):
        train(trainee, lesson, settings, folder=tmp_path, peers=ALONE, progress=lambda _: None, each_epoch=dying)
    told: list[Sequence[Epoch]] = []
    _, curves = train(
        trainee, lesson, settings, folder=tmp_path, peers=ALONE, progress=lambda _: None, each_epoch=lambda _, points: told.append(points)
    )
    assert [tuple(each) for each in told] == [curves]


def test_an_epoch_that_was_stopped_counts_the_time_before(tmp_path: Path, target: Target, conversations: list[Conversation]) -> None:
    """Training would seem the faster the more often it is killed."""

    def killing(_: float) -> None:
        if (tmp_path / "folder" / "progress.safetensors").exists():
            raise KilledError

    with pytest.raises(KilledError):
        trained(target, conversations, tmp_path / "folder", SETTINGS, killing)
    with safe_open(tmp_path / "folder" / "progress.safetensors", framework="pt") as kept:
        before_s = json.loads(kept.metadata()["paceline"])["seconds"]
    _, curves = trained(target, conversations, tmp_path / "folder", SETTINGS, lambda _: None)
    assert 0 < before_s < curves[0].seconds


def test_a_training_of_another_version_is_not_gone_on_with(tmp_path: Path, target: Target, conversations: list[Conversation]) -> None:
    """Numbers would be read as what they are not."""
    save_whole({"none": torch.zeros(1)}, tmp_path / "progress.safetensors", metadata={"paceline": '{"schema": "another/1"}'})
    with pytest.raises(BadInputError, match=r"is 'another/1', not paceline.eagle3-training/3; delete it"):
        trained(target, conversations, tmp_path, SETTINGS, lambda _: None)


def test_a_training_is_not_gone_on_with_under_other_settings(tmp_path: Path, target: Target, conversations: list[Conversation]) -> None:
    """Half of the head would be trained one way, half another, and its record would name one of them."""
    trained(target, conversations, tmp_path / "folder", replace(SETTINGS, epochs=1), lambda _: None)
    with pytest.raises(
        BadInputError, match=r"has --learning-rate 0.01, not 0.5; repeat the command with --learning-rate 0.01 to go on, or"
    ):
        trained(target, conversations, tmp_path / "folder", replace(SETTINGS, epochs=1, learning_rate=0.5), lambda _: None)


def test_the_exported_head_drafts_as_the_trained_one(tmp_path: Path, target: Target, conversations: list[Conversation]) -> None:
    """The scales of training would be missing from the published weights, and the head would draft at random."""
    trainee, lesson, vocabulary = lesson_of(target, conversations)
    train(trainee, lesson, replace(SETTINGS, epochs=2), folder=tmp_path, peers=ALONE, progress=lambda _: None, each_epoch=lambda *_: None)
    export_head(folded(trainee), vocabulary, trainee.head.config, target=CONFIG, dtype=torch.float32, folder=tmp_path / "out")
    loaded = load_eagle3(tmp_path / "out", target)
    assert loaded.hidden_layers == AUX
    replayed = head_replay(loaded.head, loaded.embedding, lesson.held_out, draft_tokens=3, rows=2, accept=is_named)
    assert tuple(walk(each, 3) for each in replayed) == held_out_counts(trainee, lesson, 3)


def test_the_exported_files_are_what_servers_load(tmp_path: Path, target: Target, conversations: list[Conversation]) -> None:
    """A server loads a head that reads other layers without a word."""
    trainee, _, vocabulary = lesson_of(target, conversations)
    export_head(folded(trainee), vocabulary, trainee.head.config, target=CONFIG, dtype=torch.bfloat16, folder=tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert config["eagle_aux_hidden_state_layer_ids"] == [1, 2, 3]  # vLLM: after so many layers
    assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [0, 1, 2]  # SGLang: outputs of layers numbered from 0
    assert eagle3_config(config, target_layers=4).aux_layers == AUX
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    ids = torch.arange(5) + tensors["d2t"]
    assert tensors["t2d"].nonzero()[:, 0].tolist() == ids.tolist()
    assert (tensors["d2t"].dtype, tensors["fc.weight"].dtype) == (torch.int64, torch.bfloat16)
    assert tensors["fc.weight"].shape == (16, 48)
    assert tensors["midlayer.self_attn.q_proj.weight"].shape == (24, 32)
    with pytest.raises(BadInputError, match="layer 0, the embeddings"):
        published_config(replace(trainee.head.config, aux_layers=(0, 1, 2)), CONFIG, dtype=torch.bfloat16)


def test_the_draft_vocabulary_is_what_the_target_writes_most() -> None:
    """The head would be able to draft what nobody ever says."""
    answers = [torch.tensor([5, 5, 3]), torch.tensor([3, 5, 1, 9])]
    found = draft_vocabulary(answers, vocab=10, size=3)
    assert found.ids.tolist() == [1, 3, 5]  # of 1 and 9, once each, the lower
    assert found.d2t.tolist() == [1, 2, 3]
    assert found.coverage == pytest.approx(6 / 7)
    assert draft_vocabulary(answers, vocab=10, size=6).ids.tolist() == [0, 1, 2, 3, 5, 9]
    with pytest.raises(BadInputError, match="not between 1 and the target's 10"):
        draft_vocabulary(answers, vocab=10, size=11)


def flop_of_update(head: Eagle3Config, *, places: int, passes: float, rows: float, longest: int) -> float:
    """The cost model of docs/reference/train-eagle3.md: `passes` and `rows` are per place."""
    shape, h = head.shape, head.shape.hidden
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    c = 2 * h * (q + 2 * kv) + q * h + 3 * h * shape.intermediate + h * head.draft_vocab
    fusing = 4 * rows * len(head.aux_layers) * head.target_hidden * h
    other_rows = 6 * (rows - 1) * 4 * h * kv
    judge = 2 * h * head.draft_vocab
    return places * (passes * (6 * c + 12 * q * longest) + fusing + other_rows + judge)


@pytest.mark.parametrize("prompt_tokens", [2, 30])
def test_an_update_takes_the_work_that_the_docs_say(tmp_path: Path, prompt_tokens: int) -> None:
    """Whoever plans a training by the formula would wait twice as long; and the states would not fit on the disk."""
    wide: dict[str, Any] = {
        "hidden_size": 128,
        "intermediate_size": 384,
        "head_dim": 32,
    }  # attention takes the share that it takes in real heads
    target = load_target(model_folder(tmp_path / "wide", **wide), dtype=torch.float32, device=CPU)
    asked = [Asked(number, tuple((number * place) % 7 for place in range(prompt_tokens)), None, stopped=False) for number in range(8)]
    decoding = Decoding(hidden_layers=AUX, end_ids=frozenset(), max_tokens=24, rows=8, kept=torch.bfloat16)
    answer_all(target, [asked], StatesFolder(tmp_path), decoding, peers=ALONE, progress=lambda _: None)
    conversations = StatesFolder(tmp_path).read(0)
    [shard] = tmp_path.glob("states-*.safetensors")
    tokens = sum(each.tokens.shape[0] for each in conversations)
    assert shard.stat().st_size == pytest.approx(tokens * 2 * (len(AUX) + 1) * target.hidden, rel=0.1)
    vocabulary = draft_vocabulary((each.tokens[each.prompt_tokens :] for each in conversations), vocab=target.vocab, size=6)
    config = head_config({**CONFIG, **wide}, aux_layers=AUX, draft_vocab=6, intermediate=None)
    trainee = new_trainee(config, target, vocabulary, layer_scales(conversations, 3), seed=1)
    lesson = Lesson(
        training=conversations,
        held_out=conversations,
        embedding=target.embedding,
        judge=target.head[vocabulary.ids],
        can_draft=vocabulary.t2d(target.vocab),
    )
    with FlopCounterMode(display=False) as counter:
        loss_of(trainee, lesson, conversations, SETTINGS)[0].backward()
    batch = batch_of([trainee.scaled(each) for each in conversations], like=target.embedding)
    with torch.no_grad():
        alive = [each.steps.shape[0] for each in unroll(trainee.head, target.embedding, batch, draft_tokens=4, accept=is_named)]
    places, rows = batch.starts.shape[0], batch.positions.shape[0]
    said = flop_of_update(config, places=places, passes=sum(alive) / places, rows=rows / places, longest=batch.padded.shape[1])
    assert sum(alive) > 1.2 * places, "hardly a draft was accepted, so later passes were not counted"
    assert counter.get_total_flops() == pytest.approx(said, rel=0.1)


def test_states_of_another_target_are_refused(tmp_path: Path) -> None:
    """A head would be trained on the states of a model that it is not served with."""
    open_states(tmp_path, {"target": "a", "max_tokens": 5})
    open_states(tmp_path, {"target": "a", "max_tokens": 5})
    with pytest.raises(
        BadInputError, match=r"another max_tokens \(.*\); give the same --max-tokens to go on with them, or choose another folder"
    ):
        open_states(tmp_path, {"target": "a", "max_tokens": 6})
    (tmp_path / "states-00000.safetensors").write_bytes(b"cut off")
    with pytest.raises(BadInputError, match="delete it and run again"):
        StatesFolder(tmp_path).read(0)
