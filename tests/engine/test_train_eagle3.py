"""A head is trained from states, survives being killed, and is exported as servers load it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from paceline.engine.answers import Asked, Decoding, answer_all
from paceline.engine.eagle3 import eagle3_config, load_eagle3
from paceline.engine.peers import Peers
from paceline.engine.replay import head_replay, walk
from paceline.engine.states import Conversation, StatesFolder, open_states
from paceline.engine.target import Target, load_target
from paceline.engine.train_eagle3.export import export_head, published_config
from paceline.engine.train_eagle3.new_head import head_config, layer_scales, new_trainee
from paceline.engine.train_eagle3.training import Lesson, Settings, Trainee, folded, held_out_counts, train
from paceline.engine.train_eagle3.vocabulary import DraftVocabulary, draft_vocabulary
from paceline.engine.unroll import is_named
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
    decay=0.9,
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
    return train(trainee, lesson, settings, folder=folder, peers=ALONE, progress=progress, each_epoch=lambda _: None)


def test_training_teaches_what_the_target_writes(tmp_path: Path, target: Target, conversations: list[Conversation]) -> None:
    """Forty minutes would be spent on a head that drafts as before."""
    trainee, lesson, _ = lesson_of(target, conversations)
    before = AcceptanceCounts.pooled(held_out_counts(trainee, lesson, 3))
    settings = replace(SETTINGS, epochs=12)
    _, curves = train(trainee, lesson, settings, folder=tmp_path, peers=ALONE, progress=lambda _: None, each_epoch=lambda _: None)
    assert curves[-1].loss < curves[0].loss
    assert max(each.held_out.alpha for each in curves) > before.alpha + 0.1


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


def test_a_training_is_not_gone_on_with_under_other_settings(tmp_path: Path, target: Target, conversations: list[Conversation]) -> None:
    """Half of the head would be trained one way, half another, and its record would name one of them."""
    trained(target, conversations, tmp_path / "folder", replace(SETTINGS, epochs=1), lambda _: None)
    with pytest.raises(BadInputError, match=r"a training with learning_rate 0.01, not 0.5"):
        trained(target, conversations, tmp_path / "folder", replace(SETTINGS, epochs=1, learning_rate=0.5), lambda _: None)


def test_the_exported_head_drafts_as_the_trained_one(tmp_path: Path, target: Target, conversations: list[Conversation]) -> None:
    """The scales of training would be missing from the published weights, and the head would draft at random."""
    trainee, lesson, vocabulary = lesson_of(target, conversations)
    train(trainee, lesson, replace(SETTINGS, epochs=2), folder=tmp_path, peers=ALONE, progress=lambda _: None, each_epoch=lambda _: None)
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


def test_states_of_another_target_are_refused(tmp_path: Path) -> None:
    """A head would be trained on the states of a model that it is not served with."""
    open_states(tmp_path, {"target": "a", "max_tokens": 5})
    open_states(tmp_path, {"target": "a", "max_tokens": 5})
    with pytest.raises(BadInputError, match="hidden states of another max_tokens"):
        open_states(tmp_path, {"target": "a", "max_tokens": 6})
    (tmp_path / "states-00000.safetensors").write_bytes(b"cut off")
    with pytest.raises(BadInputError, match="delete it and run again"):
        StatesFolder(tmp_path).read(0)
