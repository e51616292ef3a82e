"""A model's folder is read without its weights, and what is broken or dangerous in it is said before a server finds out."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from paceline.checkpoint import Checkpoint
from paceline.errors import BadInputError
from paceline.files.modeldir import read_checkpoint, weights_fingerprint
from tests.checkpoints import BODY, HEAD, HEAD_BODY, LLAMA, folder, safetensors, tokenizer

OFFSETS = [0, 0, 1, 1, 2, 5, 5, 8, 9, 22]  # draft tokens 0 to 9 are the target's 0, 1, 3, 4, 6, 10, 11, 15, 17 and 31


def raw(path: Path, header: bytes, data: bytes = b"") -> Path:
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)
    return path


def test_a_folder_is_read_without_its_weights(tmp_path: Path) -> None:
    """Whoever checks a 140 GB target: only the header's few kilobytes are read."""
    read = read_checkpoint(folder(tmp_path / "llama", LLAMA, BODY))
    assert read.name == "llama"
    assert read.tensors is not None
    assert read.tensors["lm_head.weight"].shape == (32, 8)
    assert read.parameters == 32 * 8 + 16 * 8 + 8 + 32 * 8 == 648
    assert read.stored_bytes == 2 * 648
    assert (read.vocabulary, read.max_positions, read.architectures) == (32, 4096, ("LlamaForCausalLM",))
    assert (read.target_ids, read.tokens, read.speculators_type, read.auxiliary_layers) == (None, None, None, None)


def test_a_head_s_table_of_target_ids_is_read(tmp_path: Path) -> None:
    """Whoever trained a head with a wrong table: it loads, and nothing it drafts is accepted."""
    read = read_checkpoint(folder(tmp_path / "head", HEAD, HEAD_BODY, d2t=OFFSETS))
    found = read.target_ids
    assert found is not None
    assert (found.entries, found.lowest, found.highest, found.distinct, found.unmoved) == (10, 0, 31, 10, False)
    assert read.draft_vocabulary == 10
    still = read_checkpoint(folder(tmp_path / "still", HEAD, HEAD_BODY, d2t=[0] * 10)).target_ids
    assert still is not None
    assert still.unmoved


def test_a_draft_vocabulary_is_the_output_layer_s_where_none_is_stated(tmp_path: Path) -> None:
    """Whoever has an older head: its config states the target's vocabulary only."""
    stated = {name: value for name, value in HEAD.items() if name != "draft_vocab_size"}
    assert read_checkpoint(folder(tmp_path / "a", stated, HEAD_BODY)).draft_vocabulary == 10
    assert read_checkpoint(folder(tmp_path / "b", stated, None)).draft_vocabulary == 32


@pytest.mark.parametrize("tensors", [{"d2t": ("BF16", (4,))}, {"d2t": ("I64", (2, 2))}, {"d2t": ("I64", (0,))}])
def test_a_table_that_is_no_list_of_whole_numbers_is_not_read(tmp_path: Path, tensors: Any) -> None:
    """Whoever saved d2t as floats: it is not the table, and what is missing is then said."""
    assert read_checkpoint(folder(tmp_path / "head", HEAD, tensors)).target_ids is None


def test_shards_are_read_by_their_index(tmp_path: Path) -> None:
    """Whoever has a large model: its tensors lie in many files, and a stray copy beside them is not counted."""
    place = folder(tmp_path / "sharded", LLAMA, None)
    names = list(BODY)
    shards = {"model-1-of-2.safetensors": names[:2], "model-2-of-2.safetensors": names[2:]}
    for file, inside in shards.items():
        safetensors(place / file, {name: BODY[name] for name in inside})
    safetensors(place / "consolidated.safetensors", BODY)
    index = {"weight_map": {name: file for file, inside in shards.items() for name in inside}}
    (place / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    assert read_checkpoint(place).parameters == 648
    index["weight_map"]["model.layers.1.mlp.up_proj.weight"] = "model-2-of-2.safetensors"
    (place / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    with pytest.raises(BadInputError, match="1 tensors of the index are in no file"):
        read_checkpoint(place)


@pytest.mark.parametrize("shard", ["../other/model.safetensors", "/etc/passwd", "pytorch_model.bin", "..\\m.safetensors"])
def test_an_index_that_leads_out_of_its_folder_is_refused(tmp_path: Path, shard: str) -> None:
    """Whoever lints a folder from the internet: no file outside it is opened."""
    place = folder(tmp_path / "m", LLAMA, None)
    (place / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": shard}}), "utf-8")
    with pytest.raises(BadInputError, match="no safetensors file of its own folder"):
        read_checkpoint(place)


@pytest.mark.parametrize("content", ["{}", '{"weight_map": {}}', '{"weight_map": {"a": 1}}', "[1]", "{"])
def test_an_index_that_is_none_is_refused(tmp_path: Path, content: str) -> None:
    """Whoever has half a download: said at once."""
    place = folder(tmp_path / "m", LLAMA, None)
    (place / "model.safetensors.index.json").write_text(content, "utf-8")
    with pytest.raises(BadInputError, match="index"):
        read_checkpoint(place)


def test_files_without_an_index_are_all_read(tmp_path: Path) -> None:
    """Whoever saved shards by hand: servers load every file that is there, and refuse a tensor that is twice."""
    place = folder(tmp_path / "m", LLAMA, None)
    safetensors(place / "a.safetensors", {"a": ("F32", (3,))})
    safetensors(place / "b.safetensors", {"b": ("F16", (5,))})
    assert read_checkpoint(place).stored_bytes == 12 + 10
    safetensors(place / "c.safetensors", {"a": ("F32", (3,))})
    with pytest.raises(BadInputError, match="'a' is in two files"):
        read_checkpoint(place)


def test_pickles_are_never_opened(tmp_path: Path) -> None:
    """Whoever lints a stranger's folder: opening a pickle would run what is in it."""
    place = folder(tmp_path / "m", LLAMA, None)
    assert read_checkpoint(place).tensors is None
    (place / "pytorch_model.bin").write_bytes(b"cos\nsystem\n")
    with pytest.raises(BadInputError, match="convert them to safetensors"):
        read_checkpoint(place)


def test_gguf_alone_is_refused_with_what_to_give(tmp_path: Path) -> None:
    """Whoever serves with llama.cpp: the pair is checked on the folders the GGUF files were made from."""
    place = folder(tmp_path / "m", LLAMA, None)
    (place / "m-q4.gguf").write_bytes(b"GGUF")
    with pytest.raises(BadInputError, match="safetensors folder it was made from"):
        read_checkpoint(place)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    """Whoever names the weights instead of their folder."""
    with pytest.raises(BadInputError, match="is no folder"):
        read_checkpoint(safetensors(tmp_path / "m.safetensors", BODY))


HOSTILE = {
    "huge length": struct.pack("<Q", 2**63) + b"{}",
    "length beyond the file": struct.pack("<Q", 100) + b"{}",
    "empty": b"",
    "seven bytes": b"\0" * 7,
    "not JSON": struct.pack("<Q", 4) + b"{no}",
    "deep": struct.pack("<Q", 200_000) + b"[" * 200_000,
    "a list": struct.pack("<Q", 2) + b"[]",
    "trailing data": struct.pack("<Q", 2) + b"{}" + b"x",
    "twice": struct.pack("<Q", 21) + b'{"a": {}, "a": {}}   ',
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_header_is_refused(tmp_path: Path, content: bytes) -> None:
    """Whoever reads a stranger's file: a length is never allocated before it is bounded."""
    place = folder(tmp_path / "m", LLAMA, None)
    (place / "model.safetensors").write_bytes(content)
    with pytest.raises(BadInputError, match=r"model\.safetensors"):
        read_checkpoint(place)


ENTRIES: dict[str, Any] = {
    "unknown dtype": {"dtype": "Q4", "shape": [1], "data_offsets": [0, 2]},
    "no entry": None,
    "negative": {"dtype": "BF16", "shape": [-1], "data_offsets": [0, 2]},
    "a float": {"dtype": "BF16", "shape": [1.0], "data_offsets": [0, 2]},
    "a truth": {"dtype": "BF16", "shape": [True], "data_offsets": [0, 2]},
    "shape and place differ": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 2]},
    "backwards": {"dtype": "BF16", "shape": [1], "data_offsets": [2, 0]},
    "one end": {"dtype": "BF16", "shape": [1], "data_offsets": [2]},
    "too many dimensions": {"dtype": "BF16", "shape": [1] * 17, "data_offsets": [0, 2]},
    "beyond the file": {"dtype": "BF16", "shape": [10**6], "data_offsets": [0, 2 * 10**6]},
    "too large for any file": {"dtype": "BF16", "shape": [2**61], "data_offsets": [0, 2]},
    "unhashable dtype": {"dtype": ["BF16"], "shape": [1], "data_offsets": [0, 2]},
}


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_an_impossible_tensor_is_refused(tmp_path: Path, entry: Any) -> None:
    """Whoever has a file that was cut: half a checkpoint passes for a small one otherwise."""
    place = folder(tmp_path / "m", LLAMA, None)
    raw(place / "model.safetensors", json.dumps({"a": entry}).encode(), b"\0\0")
    with pytest.raises(BadInputError, match=r"model\.safetensors"):
        read_checkpoint(place)


def test_tokenizers_are_alike_where_every_id_means_the_same(tmp_path: Path) -> None:
    """Whoever pairs Qwen's 151,936 with its 152,064: only padding differs, and the tokens say so."""
    words = ["a", "b", "<s>"]
    one, other = folder(tmp_path / "one", LLAMA, None), folder(tmp_path / "other", LLAMA, None)
    tokenizer(one, words)
    content = {"model": {"vocab": {"b": 1, "a": 0}, "merges": ["a b"]}, "added_tokens": [{"id": 2, "content": "<s>"}, 7]}
    (other / "tokenizer.json").write_text(json.dumps(content, indent=2), "utf-8")
    same, again = read_checkpoint(one).tokens, read_checkpoint(other).tokens
    assert same is not None
    assert same == again
    assert (same.texts, same.source) == ({0: "a", 1: "b", 2: "<s>"}, "tokenizer.json")
    tokenizer(one, ["b", "a", "<s>"])
    assert read_checkpoint(one).tokens != same


def test_other_tokenizer_files_are_told_apart(tmp_path: Path) -> None:
    """Whoever has an old folder: a file we cannot look into still compares by its bytes."""
    unigram, words, piece = (folder(tmp_path / each, LLAMA, None) for each in ("unigram", "words", "piece"))
    (unigram / "tokenizer.json").write_text(json.dumps({"model": {"vocab": [["a", -1.0], ["b", -2.0]]}}), "utf-8")
    (words / "vocab.json").write_text(json.dumps({"a": 0, "b": 1}), "utf-8")
    (piece / "tokenizer.model").write_bytes(b"sentencepiece")
    found = [read_checkpoint(each).tokens for each in (unigram, words, piece)]
    assert [None if each is None else (each.source, each.texts) for each in found] == [
        ("tokenizer.json", {0: "a", 1: "b"}),
        ("vocab.json", {0: "a", 1: "b"}),
        ("tokenizer.model", None),
    ]


@pytest.mark.parametrize("content", ["[]", '{"model": {"vocab": {"a": -1}}}', '{"model": {"vocab": [3, []]}}', "{"])
def test_a_tokenizer_without_tokens_is_refused(tmp_path: Path, content: str) -> None:
    """Whoever has half a download."""
    place = folder(tmp_path / "m", LLAMA, None)
    (place / "tokenizer.json").write_text(content, "utf-8")
    with pytest.raises(BadInputError, match=r"tokenizer\.json"):
        read_checkpoint(place)


def of(**config: Any) -> Checkpoint:
    return Checkpoint(name="m", config=config, tensors=None, target_ids=None, tokens=None)


def test_a_nested_configuration_is_followed() -> None:
    """Whoever has a multimodal target, or a head in the speculators format: the sizes stand one level down."""
    assert of(text_config={"vocab_size": 7, "n_positions": 5}).vocabulary == 7
    speculator = of(speculators_model_type="eagle3", transformer_layer_config={"hidden_size": 3}, draft_vocab_size=2)
    assert (speculator.size("hidden_size"), speculator.draft_vocabulary, speculator.speculators_type) == (3, 2, "eagle3")
    assert of(vocab_size=True, architectures="x", speculators_model_type=3).vocabulary is None
    assert (of(architectures="x").architectures, of(speculators_model_type=3).speculators_type) == ((), None)
    assert (of().parameters, of().stored_bytes, of().max_positions) == (None, None, None)


@pytest.mark.parametrize(
    ("scaling", "length"),
    [
        (None, 1000),
        ("x", 1000),
        ({"rope_type": "llama3", "factor": 8.0}, 1000),
        ({"type": "linear", "factor": 2}, 2000),
        ({"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 100}, 3200),
        ({"rope_type": "yarn", "factor": 4}, 4000),
        ({"rope_type": "linear", "factor": True}, 1000),
        ({"rope_type": "linear", "factor": float("inf")}, 1000),
        ({"rope_type": "linear", "factor": 0.5}, 1000),
        ({"factor": 2.0}, 1000),
    ],
)
def test_the_longest_context_counts_rotary_scaling(scaling: Any, length: int) -> None:
    """Whoever extends a target's window: its head was not extended with it, and reads past its end."""
    assert of(max_position_embeddings=1000, rope_scaling=scaling).max_positions == length


def test_auxiliary_layers_are_found_where_heads_state_them() -> None:
    """Whoever trained on layers of their own choice: servers take their default where none are stated."""
    assert of(eagle_aux_hidden_state_layer_ids=[2, 6, 9]).auxiliary_layers == (2, 6, 9)
    assert of(eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 2, 3]}).auxiliary_layers == (1, 2, 3)
    assert of(eagle_config=4).auxiliary_layers is None
    assert of(eagle_aux_hidden_state_layer_ids=["1"]).auxiliary_layers is None


def test_a_fingerprint_tells_the_same_model_trained_on_from_the_one_before(tmp_path: Path) -> None:
    """States of yesterday's target, kept for a target of the same shape, would train a head that fits neither."""
    one = folder(tmp_path / "one", LLAMA, BODY)
    copy = folder(tmp_path / "copy", LLAMA, BODY)
    assert weights_fingerprint(one) == weights_fingerprint(copy)
    file = copy / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    trained_on = weights_fingerprint(copy)
    other = folder(tmp_path / "other", LLAMA | {"rms_norm_eps": 1e-3}, BODY)
    assert len({weights_fingerprint(one), trained_on, weights_fingerprint(other)}) == 3
