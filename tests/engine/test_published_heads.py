"""Draft heads as others publish them: every layout is one head, and what is incomplete, foreign or mistaken is refused by name."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from paceline.engine.drafters.eagle import EagleDrafter, FeatureHead
from paceline.engine.eagle1 import LoadedEagle1
from paceline.engine.eagle3 import load_eagle3
from paceline.engine.rows import Row
from paceline.engine.speculative_sampling import Generated
from paceline.engine.target import Target
from paceline.errors import BadInputError
from paceline.speculation.method import Tree
from tests.engine.tiny import SIZES, eagle1_settings, eagle1_tensors, eagle3_settings, eagle3_tensors, model_folder, tiny_target
from tests.engine.written_out import causal, eagle1_logits, eagle3_logits

CONTEXT = [3, 1, 4, 1, 5, 6, 2, 6, 5, 3]
AUX = "eagle_aux_hidden_state_layer_ids"
LAYERS = [2, 4, 5]  # of a target with 8 layers these are read where nothing is said
SPECULATORS = {"speculators_config": {"proposal_methods": [{"speculative_tokens": 3}], "verifier": {"name_or_path": "target"}}}

Config = dict[str, Any]
Tensors = dict[str, Tensor]
Files = dict[str, Tensors]
Layout = Callable[[Config, Tensors], tuple[Config, Files]]


@pytest.fixture
def target() -> Target:
    """A tiny target with layers enough to tell numberings apart."""
    return tiny_target(8)


def write(folder: Path, config: Config, files: Files, *, indexed: bool = False) -> Path:
    """A folder of that config and those files."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    for name, tensors in files.items():
        save_file({each: tensor.contiguous() for each, tensor in tensors.items()}, folder / name)
    if indexed:
        weight_map = {each: name for name, tensors in files.items() for each in tensors}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def one(tensors: Tensors) -> Files:
    return {"model.safetensors": tensors}


def halves(tensors: Tensors, stem: str) -> Files:
    names = sorted(tensors)
    parts = (names[: len(names) // 2], names[len(names) // 2 :])
    return {f"{stem}-0000{number}-of-00002.safetensors": {each: tensors[each] for each in part} for number, part in enumerate(parts, 1)}


def renamed(tensors: Mapping[str, Tensor], *pairs: tuple[str, str]) -> Tensors:
    for old, new in pairs:
        tensors = {name.replace(old, new): tensor for name, tensor in tensors.items()}
    return dict(tensors)


def within(tensors: Tensors) -> Tensors:
    """As saved from within a model."""
    return {name if name.startswith(("lm_head", "d2t", "t2d")) else f"model.{name}": tensor for name, tensor in tensors.items()}


def t2d(tensors: Tensors) -> Tensors:
    """With the table from the target's vocabulary, which nobody needs."""
    drafted = torch.zeros(SIZES["vocab_size"], dtype=torch.bool)
    drafted[torch.arange(tensors["d2t"].shape[0]) + tensors["d2t"]] = True
    return {**tensors, "t2d": drafted}


def unnamed(config: Config) -> Config:
    return {name: value for name, value in config.items() if name != AUX}


def speculators(config: Config, kind: str) -> Config:
    """A config.json as the speculators library nests it."""
    own = ("draft_vocab_size", "target_hidden_size", "norm_before_residual", "norm_before_fc", "fc_norm", "norm_output", "bias", AUX)
    layer = {name: value for name, value in config.items() if name not in (*own, "architectures")}
    top = {name: config[name] for name in own if name in config}
    return {"speculators_model_type": kind, **SPECULATORS, "transformer_layer_config": layer, "norm_before_residual": False, **top}


EAGLE3_LAYOUTS: dict[str, Layout] = {
    "vllm": lambda config, tensors: (config, one(tensors)),
    "eagle": lambda config, tensors: (unnamed(config), one(t2d(tensors))),
    "specforge": lambda config, tensors: (
        {**unnamed(config), "eagle_config": {"use_aux_hidden_state": True, AUX: [each - 1 for each in LAYERS]}},
        one(t2d(tensors)),
    ),
    "both-numberings": lambda config, tensors: ({**config, "eagle_config": {AUX: [each - 1 for each in LAYERS]}}, one(tensors)),
    "sglang-saved": lambda config, tensors: (unnamed(config), one(within(tensors))),
    "speculators": lambda config, tensors: (
        speculators(config, "eagle3"),
        one(t2d(renamed({**tensors, "verifier_lm_head.weight": torch.zeros(5, 16)}, ("midlayer.", "layers.0.")))),
    ),
    "other-name": lambda config, tensors: (config, {"eagle3.safetensors": tensors}),
    "shards": lambda config, tensors: (config, halves(tensors, "head")),
    "indexed": lambda config, tensors: (config, halves(tensors, "model")),
}
EAGLE_LAYOUTS: dict[str, Layout] = {
    "eagle": lambda config, tensors: (config, one(tensors)),
    "sglang-saved": lambda config, tensors: (config, one(within(tensors))),
    "speculators": lambda config, tensors: (
        speculators(config, "eagle"),
        one(renamed(tensors, ("layers.0.", "transformer."), ("fc.", "fusion_fc."))),
    ),
    "other-name": lambda config, tensors: (config, {"eagle.safetensors": tensors}),
    "indexed": lambda config, tensors: (config, halves(tensors, "model")),
}
VARIANTS: dict[str, Config] = {
    "plain": {},
    "residual-normed": {"norm_before_residual": True},
    "read-normed": {"norm_before_fc": True, "bias": True},
    "read-normed-by-layer": {"fc_norm": True, "norm_output": True},
    "biased": {"attention_bias": True},
    "whole-vocabulary": {"draft_vocab_size": 7},
    "narrow": {"hidden_size": 12, "target_hidden_size": 16},
}


def eagle3(**changes: Any) -> tuple[Config, Tensors]:
    config = eagle3_settings(**{AUX: LAYERS, **changes})
    tensors = eagle3_tensors(config)
    if config["hidden_size"] != SIZES["hidden_size"]:
        tensors["embed_tokens.weight"] = torch.randn(SIZES["vocab_size"], config["hidden_size"])
    return config, tensors


def drafts(head: FeatureHead, target: Target) -> list[Any]:
    """What a head drafts behind the context: a chain, a tree, and the law of a drawn token."""
    [answered] = target.forward([Row(torch.tensor(CONTEXT[:-1]), target.new_cache(), None, 0)], hidden_layers=head.hidden_layers)
    found: list[Any] = []
    for tree, temperature in ((None, 0.0), (Tree(3, 2, 6), 0.0), (None, 1.0)):
        drafting = EagleDrafter(head, draft_tokens=3, tree=tree, temperature=temperature).begin()
        drafting.observe(answered, None)
        draft = drafting.draft(CONTEXT, Generated(1))
        found += [draft.tokens, draft.parents, {node: law.tolist() for node, law in draft.laws.items()}]
    return found


@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_every_layout_of_an_eagle3_head_drafts_the_same(variant: str, target: Target, tmp_path: Path) -> None:
    """The same head under another library's names, or with its layers numbered otherwise, drafts noise and says nothing."""
    config, tensors = eagle3(**VARIANTS[variant])
    found = {}
    for name, layout in EAGLE3_LAYOUTS.items():
        folder = write(tmp_path / name, *layout(config, tensors), indexed=name == "indexed")
        found[name] = drafts(load_eagle3(folder, target), target)
    assert all(each == found["vllm"] for each in found.values()), found


@pytest.mark.parametrize("layers", [1, 2])
def test_every_layout_of_an_eagle_head_drafts_the_same(layers: int, target: Target, tmp_path: Path) -> None:
    """The same for the heads of EAGLE-1 and EAGLE-2."""
    config = eagle1_settings(bias=True, num_hidden_layers=layers)
    tensors = {**eagle1_tensors(config), "embed_tokens.weight": torch.randn(7, 16)}
    found = {}
    for name, layout in EAGLE_LAYOUTS.items():
        folder = write(tmp_path / name, *layout(config, tensors), indexed=name == "indexed")
        found[name] = drafts(LoadedEagle1(folder, target), target)
    assert all(each == found["eagle"] for each in found.values()), found


@pytest.mark.parametrize("variant", [*sorted(VARIANTS), "queries-normed"])
def test_an_eagle3_head_computes_its_formula(variant: str, target: Target, tmp_path: Path) -> None:
    """A norm at the wrong place loads as well as at the right one, and acceptance is a little lower, for ever."""
    config, tensors = eagle3(**VARIANTS.get(variant, {}))
    if variant == "queries-normed":
        tensors |= {f"midlayer.self_attn.{each}_norm.weight": torch.randn(SIZES["head_dim"]) for each in "qk"}
    head = load_eagle3(write(tmp_path / "head", config, one(tensors)), target)
    [answered] = target.forward([Row(torch.tensor(CONTEXT[:-1]), target.new_cache(), None, 0)], hidden_layers=LAYERS)
    embeddings = head.embedding[torch.tensor(CONTEXT[1:])]
    made = head.run(embeddings, head.read(answered), positions=torch.arange(9), attends=[causal])
    logits, after = eagle3_logits(tensors, config, answered.hidden, embeddings)
    torch.testing.assert_close(made, after, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(head.logits(made), logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("config", [eagle1_settings(), eagle1_settings(bias=True, num_hidden_layers=3)])
def test_an_eagle_head_computes_its_formula(config: Config, target: Target, tmp_path: Path) -> None:
    """Of several layers the first has no input norm: normed all the same, the head drafts worse than it was trained to."""
    tensors = eagle1_tensors(config)
    head = LoadedEagle1(write(tmp_path / "head", config, one(tensors)), target)
    [answered] = target.forward([Row(torch.tensor(CONTEXT[:-1]), target.new_cache(), None, 0)], hidden_layers=())
    embeddings = target.embedding[torch.tensor(CONTEXT[1:])]
    made = head.run(embeddings, answered.features, positions=torch.arange(9), attends=[causal] * head.layers)
    logits = eagle1_logits(tensors, config, answered.features, embeddings, target.head)
    torch.testing.assert_close(head.logits(made), logits, rtol=1e-5, atol=1e-5)


def test_heads_use_the_target_s_parts_where_they_have_none(target: Target, tmp_path: Path) -> None:
    """Published heads leave embeddings out, and the output head of the whole vocabulary; their own come first where they have them."""
    config, tensors = eagle3(draft_vocab_size=7)
    shorn = {name: each for name, each in tensors.items() if name not in ("d2t", "lm_head.weight")}
    shared = load_eagle3(write(tmp_path / "shared", config, one(shorn)), target)
    assert shared.embedding is target.embedding
    torch.testing.assert_close(shared.head.lm_head.weight.data, target.head)
    own = {each: torch.randn(7, 16) for each in ("embed_tokens.weight", "lm_head.weight")}
    torch.testing.assert_close(
        load_eagle3(write(tmp_path / "own", config, one(tensors | own)), target).embedding, own["embed_tokens.weight"].double()
    )
    head = LoadedEagle1(write(tmp_path / "eagle", eagle1_settings(), one(eagle1_tensors(eagle1_settings()) | own)), target)
    torch.testing.assert_close(head.embed(torch.arange(7)), own["embed_tokens.weight"].double())
    torch.testing.assert_close(head.logits(torch.eye(16).double()), own["lm_head.weight"].double().T)


def refusal(folder: Path, target: Target, *, eagle: bool = False) -> str:
    with pytest.raises(BadInputError) as raised:
        LoadedEagle1(folder, target) if eagle else load_eagle3(folder, target)
    return str(raised.value)


@pytest.mark.parametrize("variant", ["plain", "read-normed", "read-normed-by-layer", "biased", "narrow"])
@pytest.mark.parametrize("layout", ["vllm", "sglang-saved", "speculators"])
def test_an_eagle3_head_that_lacks_a_tensor_is_refused_with_its_name(layout: str, variant: str, target: Target, tmp_path: Path) -> None:
    """VLLM loads a head without d2t, drafts token i for token i, and accepts next to nothing."""
    config, files = EAGLE3_LAYOUTS[layout](*eagle3(**VARIANTS[variant]))
    [tensors] = files.values()
    for name in sorted(tensors.keys() - {"t2d", "verifier_lm_head.weight"}):
        left = {each: tensor for each, tensor in tensors.items() if each != name}
        assert f"lacks the tensor {name.removeprefix('model.')}" in refusal(write(tmp_path / "head", config, one(left)), target)


@pytest.mark.parametrize("layout", ["eagle", "sglang-saved", "speculators"])
def test_an_eagle_head_that_lacks_a_tensor_is_refused_with_its_name(layout: str, target: Target, tmp_path: Path) -> None:
    """Half a download, or a conversion that forgot one."""
    config = eagle1_settings(bias=True, num_hidden_layers=2)
    config, files = EAGLE_LAYOUTS[layout](config, eagle1_tensors(config) | {"embed_tokens.weight": torch.randn(7, 16)})
    [tensors] = files.values()
    for name in sorted(each for each in tensors if "embed_tokens" not in each):
        left = {each: tensor for each, tensor in tensors.items() if each != name}
        message = refusal(write(tmp_path / "head", config, one(left)), target, eagle=True)
        assert f"lacks the tensor {name.removeprefix('model.')}" in message
        assert "seems to hold" not in message


@pytest.mark.parametrize("eagle", [False, True])
def test_a_tensor_of_another_shape_is_refused_with_its_name(eagle: bool, target: Target, tmp_path: Path) -> None:
    """A config of one head beside the weights of another."""
    config = eagle1_settings(bias=True) if eagle else eagle3()[0]
    tensors = eagle1_tensors(config) if eagle else eagle3_tensors(config) | {"embed_tokens.weight": torch.randn(7, 16)}
    for name, tensor in tensors.items():
        cut = {**tensors, name: tensor[:-1]}
        message = f"{name} has shape {[tensor.shape[0] - 1, *tensor.shape[1:]]}, but the configuration says {list(tensor.shape)}"
        assert message in refusal(write(tmp_path / "head", config, one(cut)), target, eagle=eagle)


def test_a_d2t_that_leads_astray_is_refused(target: Target, tmp_path: Path) -> None:
    """Two draft ids for one token, or one before or beyond the vocabulary; ids where offsets belong."""
    config, tensors = eagle3()
    for wrong in ([0, 0, 0, 0, 3], [0, 0, -1, 0, 0], [-1, 0, 0, 0, 0], [0, 2, 3, 5, 6]):
        folder = write(tmp_path / "head", config, one({**tensors, "d2t": torch.tensor(wrong)}))
        assert "d2t does not lead to 5 tokens of the vocabulary of 7" in refusal(folder, target)


def test_an_order_of_its_own_needs_an_output_head_of_its_own(target: Target, tmp_path: Path) -> None:
    """The target's output head has the target's order: a permuted draft vocabulary would name every token by another one."""
    config, tensors = eagle3(draft_vocab_size=7)
    tensors["d2t"] = torch.tensor([6, 4, 2, 0, -2, -4, -6])
    assert load_eagle3(write(tmp_path / "head", config, one(tensors)), target).target_ids(torch.arange(7)).tolist() == [6, 5, 4, 3, 2, 1, 0]
    del tensors["lm_head.weight"]
    assert "lacks the tensor lm_head.weight" in refusal(write(tmp_path / "head", config, one(tensors)), target)


MEDUSA = {"blocks.0.layers.0.weight": torch.zeros(16, 16), "lm_heads.0.weight": torch.zeros(7, 16)}
MEDUSA_LEGACY = {"0.0.linear.weight": torch.zeros(16, 16), "0.0.linear.bias": torch.zeros(16), "0.1.weight": torch.zeros(7, 16)}


@pytest.mark.parametrize(
    ("config", "tensors", "held", "remedy"),
    [
        ({"model_type": "medusa", "hidden_size": 16, "vocab_size": 7, "num_heads": 1}, MEDUSA, "a MEDUSA head", "not run here"),
        ({**SIZES, "medusa_num_heads": 1}, MEDUSA_LEGACY, "a MEDUSA head", "not run here"),
        (eagle1_settings(), eagle1_tensors(eagle1_settings()), "an EAGLE head", "say --method eagle"),
        (eagle3()[0], eagle3()[1], "an EAGLE-3 head", "say --method eagle3"),
        ({**eagle3()[0], "architectures": ["LlamaForCausalLM"]}, eagle3()[1], "an EAGLE-3 head", "say --method eagle3"),
    ],
)
def test_another_kind_of_draft_is_refused_as_what_it_is(
    config: Config, tensors: Tensors, held: str, remedy: str, target: Target, tmp_path: Path
) -> None:
    """The wrong --method would read the wrong hidden states; whoever mistyped it is told which it is."""
    folder = write(tmp_path / "head", config, one(tensors))
    for eagle, wanted in ((True, "an EAGLE head"), (False, "an EAGLE-3 head")):
        if wanted != held:
            message = refusal(folder, target, eagle=eagle)
            assert f"seems to hold {held}, not {wanted}" in message
            assert message.endswith(remedy)


def test_a_whole_model_is_no_head(target: Target, tmp_path: Path) -> None:
    """Whoever gives a small model as a head: it has its own method."""
    folder = model_folder(tmp_path, num_hidden_layers=1)
    for eagle, wanted in ((True, "an EAGLE head"), (False, "an EAGLE-3 head")):
        message = refusal(folder, target, eagle=eagle)
        assert "lacks the tensor fc.weight" in message
        assert f"seems to hold a whole model, not {wanted}; say --method draft-model" in message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 9}, "made for another target: vocabulary 9, here 7"),
        ({"target_hidden_size": 32}, "target's hidden size 32, here 16"),
        ({AUX: [1, 2, 9]}, r"reads the layers [1, 2, 9] of a target with 8"),
        ({AUX: [2, 4]}, "fc.weight has shape [16, 48], but the configuration says [16, 32]"),
        ({"num_hidden_layers": 2}, "the head has 2 layers"),
        ({"parallel_drafting": True}, "asks for parallel_drafting"),
        ({"eagle_config": {"use_aux_hidden_state": False}}, "use_aux_hidden_state is false"),
        ({"eagle_config": [1]}, "lacks or misstates"),
        ({"hidden_act": "gelu"}, "says hidden_act 'gelu', which is not supported"),
        ({"quantization_config": {"quant_method": "fp8"}}, "says quantization_config"),
        ({"speculators_model_type": "dflash"}, "of kind 'dflash', not eagle3"),
        ({"hidden_size": None}, "does not state hidden_size"),
        ({"vocab_size": 10**12}, "vocab_size is 1000000000000, which is no whole number from 1 to"),
        ({"draft_vocab_size": 0}, "draft_vocab_size is 0, which"),
        ({"draft_vocab_size": -5}, "draft_vocab_size is -5, which"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0, which"),
        ({"num_attention_heads": "4"}, "num_attention_heads is '4', which"),
        ({"num_hidden_layers": 1.5}, "num_hidden_layers is 1.5, which"),
        ({"target_hidden_size": True}, "target_hidden_size is True, which"),
        ({"intermediate_size": {}}, "intermediate_size is {}, which"),
        ({"logit_scale": float("nan")}, "logit_scale is nan, which"),
        ({"rope_theta": -1, "rope_parameters": None}, "rope_theta is -1, which"),
        ({"rope_parameters": [1]}, "is [1], which is no object"),
        ({"eagle_aux_hidden_state_layer_ids": [1, "x", 3]}, "has 'x', which is no layer's number"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2, 10**9]}, "reads the layers [1, 2, 1000000000] of a target with"),
        ({"draft_vocab_size": 4}, "d2t has shape [5], but the configuration says [4]"),
    ],
)
def test_a_head_for_something_else_is_refused(change: Config, message: str, target: Target, tmp_path: Path) -> None:
    """A head of another model loads where sizes happen to agree, and then only drags."""
    config, tensors = eagle3()
    assert message in refusal(write(tmp_path / "head", config | change, one(tensors)), target)


@pytest.mark.parametrize(
    "extra", ["input_norm.weight", "fc_norm.0.weight", "layers.1.mlp.up_proj.weight", "midlayer.mlp.up_proj.bias", "embed_norm.weight"]
)
def test_a_tensor_without_a_place_is_refused(extra: str, target: Target, tmp_path: Path) -> None:
    """A norm that was trained and is left out makes another head of it; a library that skips unknown tensors says nothing."""
    config, tensors = eagle3()
    assert f"has the tensor '{extra}', for which" in refusal(
        write(tmp_path / "head", config, one(tensors | {extra: torch.ones(16)})), target
    )


def test_a_tensor_in_two_spellings_is_refused(target: Target, tmp_path: Path) -> None:
    """Two heads in one folder: nobody knows which is meant."""
    config, tensors = eagle3()
    twice = tensors | {"model.fc.weight": tensors["fc.weight"].clone()}
    assert "has 'fc.weight' and 'model.fc.weight', which are one tensor" in refusal(write(tmp_path / "head", config, one(twice)), target)


def test_a_folder_of_no_weights_is_told(target: Target, tmp_path: Path) -> None:
    """Whoever cloned a repository without its large files."""
    assert "has no weights" in refusal(write(tmp_path / "head", eagle3()[0], {}), target)
