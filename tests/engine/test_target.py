"""The target: the lean forward is transformers' own, caches roll back exactly, and broken folders are refused by name."""

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from paceline.engine.checkpoint import open_checkpoint
from paceline.engine.llama import LlamaTarget, is_llama_like
from paceline.engine.rows import Row, tree_layout
from paceline.engine.target import LibraryTarget, Target, load_target
from paceline.errors import BadInputError
from tests.engine.tiny import CPU, FAMILY, model_folder

TOKENS = torch.tensor([3, 1, 4, 1, 5, 6, 2, 6, 5, 3])
CLOSE = {"rtol": 1e-12, "atol": 1e-12}
NEAR = {"rtol": 1e-4, "atol": 1e-4}  # transformers norms in float32, whatever the model's own precision


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of a model that runs on the lean forward, and of one that the library runs."""
    return {each: model_folder(tmp_path_factory.mktemp("models") / each, each) for each in ("llama", "gpt-neox")}


def loaded(folder: Path, kind: str) -> Target:
    """The lean target, or the library's."""
    checkpoint = open_checkpoint(folder)
    if kind == "lean":
        return LlamaTarget(checkpoint, dtype=torch.float64, device=CPU, mesh=None)
    return LibraryTarget(checkpoint, dtype=torch.float64, device=CPU, mesh=None)


@pytest.mark.parametrize("family", sorted(set(FAMILY) - {"gpt-neox"}))
@pytest.mark.parametrize("kind", ["lean", "library"])
def test_every_family_s_forward_is_the_library_s(family: str, kind: str, tmp_path: Path) -> None:
    """A target that is almost the model is another model: every text differs, every acceptance with it."""
    folder = model_folder(tmp_path, family)
    assert is_llama_like(open_checkpoint(folder).config)
    target = loaded(folder, kind)
    with torch.no_grad():
        wanted = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)(TOKENS[None], output_hidden_states=True)
    [answered] = target.forward([Row(TOKENS, target.new_cache(), None, 4)], hidden_layers=(0, 1, 3))
    torch.testing.assert_close(answered.logits, wanted.logits[0, -4:], **NEAR)
    torch.testing.assert_close(answered.features, wanted.hidden_states[-1][0], **NEAR)
    for layer, hidden in zip((0, 1, 3), answered.hidden, strict=True):
        torch.testing.assert_close(hidden, wanted.hidden_states[layer][0], **NEAR)
    torch.testing.assert_close(target.unembed(answered.features[-4:]), answered.logits, **NEAR)


def test_both_targets_number_the_last_layer_before_the_final_norm(tmp_path: Path) -> None:
    """Transformers' list of hidden states has the norm in its last entry: a head that reads layer L would get another vector elsewhere."""
    folder = model_folder(tmp_path)
    answers = [
        target.forward([Row(TOKENS, target.new_cache(), None, 1)], hidden_layers=(4,))[0]
        for target in (loaded(folder, "lean"), loaded(folder, "library"))
    ]
    torch.testing.assert_close(answers[0].hidden[0], answers[1].hidden[0], **NEAR)
    assert not torch.allclose(answers[0].hidden[0], answers[0].features)


@pytest.mark.parametrize("kind", ["lean", "library"])
def test_a_cache_that_rolled_back_never_saw_what_it_forgot(kind: str, tmp_path: Path) -> None:
    """One refused token that stays in the cache changes every token after it."""
    target = loaded(model_folder(tmp_path), kind)
    fresh, used = target.new_cache(), target.new_cache()
    [wanted] = target.forward([Row(TOKENS, fresh, None, 4)], hidden_layers=())
    target.forward([Row(TOKENS[:6], used, None, 1)], hidden_layers=())
    target.forward([Row(TOKENS[:5].flip(0), used, None, 1)], hidden_layers=())
    used.rollback(6)
    [answered] = target.forward([Row(TOKENS[6:], used, None, 4)], hidden_layers=())
    torch.testing.assert_close(answered.logits, wanted.logits, **CLOSE)
    assert used.length == len(TOKENS)


@pytest.mark.parametrize("kind", ["lean", "library"])
def test_each_path_of_a_tree_is_what_it_would_be_alone(kind: str, tmp_path: Path) -> None:
    """A node that sees its cousin, or stands at the wrong position, is verified against a text that nobody wrote."""
    target = loaded(model_folder(tmp_path), kind)
    # The root 3 has children 1 and 2, 1 has 4 and 5, 2 has 6; nodes are written level by level.
    tokens, parents = torch.tensor([3, 1, 2, 4, 5, 6]), (-1, 0, 0, 1, 1, 2)
    cache = target.new_cache()
    target.forward([Row(TOKENS, cache, None, 1)], hidden_layers=())
    [tree] = target.forward([Row(tokens, cache, tree_layout(parents, device=CPU), 6)], hidden_layers=())
    for path in ((0, 1, 3), (0, 1, 4), (0, 2, 5)):
        alone = target.new_cache()
        [wanted] = target.forward([Row(torch.cat((TOKENS, tokens[list(path)])), alone, None, 3)], hidden_layers=())
        torch.testing.assert_close(tree.logits[list(path)], wanted.logits, **CLOSE)
    cache.keep(len(TOKENS), [0, 2, 5])
    next_tokens = torch.tensor([6, 4])
    [after] = target.forward([Row(next_tokens, cache, None, 2)], hidden_layers=())
    [wanted] = target.forward([Row(next_tokens, alone, None, 2)], hidden_layers=())
    torch.testing.assert_close(after.logits, wanted.logits, **CLOSE)


def test_rows_of_different_lengths_share_a_pass_without_seeing_each_other(tmp_path: Path) -> None:
    """In a batch with ragged lengths, one user's text leaks into another's."""
    target = loaded(model_folder(tmp_path), "lean")
    parts = [TOKENS[:2], TOKENS[2:9], TOKENS[4:5]]
    caches = [target.new_cache() for _ in parts]
    together = target.forward([Row(part, cache, None, len(part)) for part, cache in zip(parts, caches, strict=True)], hidden_layers=(2,))
    for part, answered in zip(parts, together, strict=True):
        [wanted] = target.forward([Row(part, target.new_cache(), None, len(part))], hidden_layers=(2,))
        torch.testing.assert_close(answered.logits, wanted.logits, **CLOSE)
        torch.testing.assert_close(answered.hidden[0], wanted.hidden[0], **CLOSE)


def test_a_cache_grows_past_its_first_room(tmp_path: Path) -> None:
    """A long prompt is cut, or what came before it is lost."""
    target = loaded(model_folder(tmp_path), "lean")
    long = torch.randint(0, 7, (3000,), generator=torch.Generator().manual_seed(1))
    cache = target.new_cache()
    for part in long.split(700):
        [answered] = target.forward([Row(part, cache, None, 1)], hidden_layers=())
    [wanted] = target.forward([Row(long, target.new_cache(), None, 1)], hidden_layers=())
    torch.testing.assert_close(answered.logits, wanted.logits, rtol=1e-9, atol=1e-9)


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    """Half a download loads as a model that writes noise."""
    folder = model_folder(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.2.mlp.down_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    for kind in ("lean", "library"):
        with pytest.raises(BadInputError, match=r"lacks the tensor model\.layers\.2\.mlp\.down_proj\.weight"):
            loaded(folder, kind)


@pytest.mark.parametrize("family", ["llama", "gpt-neox"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_attention_heads", 0),
        ("num_attention_heads", 10**9),
        ("hidden_size", -16),
        ("hidden_size", 16.5),
        ("intermediate_size", "24"),
        ("num_hidden_layers", True),
        ("vocab_size", 10**12),
        ("max_position_embeddings", -1),
        ("text_config", 3),
    ],
)
def test_a_size_that_is_none_is_named_with_its_value(
    family: str, field: str, value: object, folders: dict[str, Path], tmp_path: Path
) -> None:
    """A damaged or hostile configuration would end in a fault of ours, or take all memory."""
    config = json.loads((folders[family] / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {field: value}))
    (tmp_path / "model.safetensors").symlink_to(folders[family] / "model.safetensors")
    with pytest.raises(BadInputError, match=re.escape(f"{field} is {value!r}, which is no")):
        load_target(tmp_path, dtype=torch.float32, device=CPU)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_attention_heads": 3}, "num_attention_heads is 3, which num_key_value_heads 2 does not divide"),
        ({"head_dim": 5}, "head_dim is 5"),
        ({"hidden_size": 2, "head_dim": None}, "head_dim is 0 (hidden_size 2, num_attention_heads 4)"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps is 'small', which is no number above 0"),
        ({"rope_parameters": 3}, "is 3, which is no object"),
        ({"rope_parameters": {"rope_theta": 0}}, "rope_theta is 0, which"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}}, "cannot be made"),
        ({"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 0}}, "rotary embedding"),
        ({"vocab_size": None}, "does not state vocab_size"),
    ],
)
def test_values_that_do_not_go_together_are_refused(change: dict[str, object], said: str, folders: dict[str, Path], tmp_path: Path) -> None:
    """A configuration that no model has would run, and draft garbage."""
    config = json.loads((folders["llama"] / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    (tmp_path / "model.safetensors").symlink_to(folders["llama"] / "model.safetensors")
    with pytest.raises(BadInputError, match=re.escape(said)):
        load_target(tmp_path, dtype=torch.float32, device=CPU)


def test_a_tensor_of_another_shape_is_named(tmp_path: Path) -> None:
    """A config of one size beside weights of another."""
    folder = model_folder(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": 20}))
    with pytest.raises(BadInputError, match=r"mlp\.gate_proj\.weight has shape \[24, 16\], but the configuration says \[20, 16\]"):
        loaded(folder, "lean")


def test_pickled_weights_are_not_opened(tmp_path: Path) -> None:
    """A pickle runs whatever its author wanted on the machine of whoever loads it."""
    folder = model_folder(tmp_path)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(BadInputError, match="as a pickle only"):
        load_target(folder, dtype=torch.float32, device=CPU)


def test_a_shard_that_the_index_names_must_be_there(tmp_path: Path) -> None:
    """The largest models come in dozens of files, and downloads stop in the middle."""
    folder = model_folder(tmp_path)
    names = list(load_file(folder / "model.safetensors"))
    index = {"weight_map": dict.fromkeys(names[:3], "model-00001-of-00002.safetensors")}
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    index["weight_map"][names[3]] = "model-00002-of-00002.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(BadInputError, match=r"lacks the shard 'model-00002-of-00002\.safetensors'"):
        load_target(folder, dtype=torch.float32, device=CPU)


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    """The same with one file: its header promises more than there is."""
    folder = model_folder(tmp_path)
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadInputError, match="but its header places tensors"):
        load_target(folder, dtype=torch.float32, device=CPU)


@pytest.mark.parametrize(
    "change",
    [
        {"sliding_window": 64},
        {"hidden_act": "gelu"},
        {"mlp_bias": True},
        {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
        {"quantization_config": {"bits": 4}},
        {"model_type": "gemma"},
    ],
)
def test_what_the_lean_forward_does_not_do_goes_to_the_library(change: dict[str, object]) -> None:
    """A model of the family with one more part would run without that part."""
    assert is_llama_like({"model_type": "llama"})
    assert not is_llama_like({"model_type": "llama", **change})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused_by_name(value: float, tmp_path: Path) -> None:
    """Argmax makes token 0 of them: a damaged target and any draft agree on everything, and alpha is 1."""
    folder = model_folder(tmp_path)
    name = "model.layers.2.mlp.up_proj.weight"
    tensors = load_file(folder / "model.safetensors")
    tensors[name][1, 2] = value
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BadInputError, match=f"{name} holds numbers that are none"):
        loaded(folder, "lean")


def test_weights_that_need_scales_are_refused(tmp_path: Path) -> None:
    """Eight-bit weights read as plain numbers are another model, which says nothing of it."""
    folder = model_folder(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] = tensors["model.norm.weight"].to(torch.int8)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BadInputError, match=r"model.norm.weight is torch.int8; give weights that are not quantised"):
        loaded(folder, "lean")


@pytest.mark.parametrize("kind", ["lean", "library"])
def test_logits_that_overflow_are_refused(kind: str, tmp_path: Path) -> None:
    """Finite weights can overflow on the way: every answer would be token 0, and its acceptance 1."""
    folder = model_folder(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] = torch.full((tensors["model.norm.weight"].shape[0],), 3e38)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    checkpoint = open_checkpoint(folder)
    target: Target = LlamaTarget(checkpoint, dtype=torch.float32, device=CPU, mesh=None)
    if kind == "library":
        target = LibraryTarget(checkpoint, dtype=torch.float32, device=CPU, mesh=None)
    with pytest.raises(BadInputError, match="logits are no numbers"):
        target.forward([Row(TOKENS, target.new_cache(), None, 1)], hidden_layers=())
