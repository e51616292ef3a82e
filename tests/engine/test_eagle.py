"""EAGLE heads: published layouts load, broken ones are refused by name, and drafts are what the papers' formulas give."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from paceline.engine.drafters.eagle import EagleDrafter, FeatureHead
from paceline.engine.eagle1 import LoadedEagle1
from paceline.engine.eagle3 import default_aux_layers, eagle3_config, load_eagle3
from paceline.engine.rows import Row
from paceline.engine.speculative_sampling import Generated
from paceline.engine.target import Target
from paceline.errors import BadInputError
from paceline.speculation.method import Tree
from tests.engine.tiny import SIZES, eagle1_folder, eagle3_folder, eagle3_settings, eagle3_tensors, tiny_target

CONTEXT = [3, 1, 4, 1, 5, 6, 2, 6, 5, 3]
CHANCE = Generated(1)


@pytest.fixture
def target() -> Target:
    """A tiny target."""
    return tiny_target()


def causal(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Attention of every token over itself and those before it, written out."""
    groups = queries.shape[-3] // keys.shape[-3]
    keys, values = keys.repeat_interleave(groups, -3), values.repeat_interleave(groups, -3)
    scores = queries @ keys.transpose(-1, -2) / queries.shape[-1] ** 0.5
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).tril().logical_not()
    attended = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ values
    return attended.transpose(-3, -2).flatten(-2)


def next_log_law(head: FeatureHead, target: Target, context: Sequence[int], path: Sequence[int]) -> Tensor:
    """The head's log-law behind `context` and the drafted `path`, by running everything again from the start."""
    [answered] = target.forward([Row(torch.tensor(context[:-1]), target.new_cache(), None, 0)], hidden_layers=head.hidden_layers)
    hidden = head.read(answered)
    tokens = [*context[1:], *path]
    for _ in range(len(path) + 1):
        length = hidden.shape[0]
        made = head.run(head.embed(torch.tensor(tokens[:length])), hidden, positions=torch.arange(length), attend=causal)
        hidden = torch.cat((hidden, made[-1:]))
    return torch.log_softmax(head.logits(hidden[-1:])[0], dim=-1)


def observed(drafter: EagleDrafter, head: FeatureHead, target: Target) -> Any:
    """A drafting that saw the context in two parts, as after a step that accepted two tokens."""
    drafting = drafter.begin()
    cache = target.new_cache()
    for part in (CONTEXT[:5], CONTEXT[5:-1]):
        [answered] = target.forward([Row(torch.tensor(part), cache, None, 0)], hidden_layers=head.hidden_layers)
        drafting.observe(answered, None)
        drafting.draft(CONTEXT[: cache.length + 1], CHANCE) if part[0] == CONTEXT[0] else None
    return drafting


HEADS: dict[str, Callable[[Path, Target], FeatureHead]] = {
    "eagle3": lambda folder, target: load_eagle3(eagle3_folder(folder), target),
    "eagle3-normed": lambda folder, target: load_eagle3(
        eagle3_folder(folder, norm_before_residual=True, eagle_config={"norm_before_fc": True}, draft_vocab_size=7), target
    ),
    "eagle1": lambda folder, target: LoadedEagle1(eagle1_folder(folder), target),
}


@pytest.mark.parametrize("kind", sorted(HEADS))
def test_a_chain_is_the_likeliest_token_again_and_again(kind: str, target: Target, tmp_path: Path) -> None:
    """A head whose cache keeps its own guesses drafts well at first and worse with every step."""
    head = HEADS[kind](tmp_path / "head", target)
    drafting = observed(EagleDrafter(head, draft_tokens=4, tree=None, temperature=0.0), head, target)
    draft = drafting.draft(CONTEXT, CHANCE)
    assert draft.is_chain
    for depth, token in enumerate(draft.tokens):
        law = next_log_law(head, target, CONTEXT, draft.tokens[:depth])
        assert token == int(head.target_ids(law.argmax()))


def test_a_drawn_chain_states_the_law_that_it_was_drawn_from(target: Target, tmp_path: Path) -> None:
    """Verification divides by that law: where it is another, the output is neither model's."""
    head = load_eagle3(eagle3_folder(tmp_path / "head"), target)
    drafting = observed(EagleDrafter(head, draft_tokens=3, tree=None, temperature=0.7), head, target)
    draft = drafting.draft(CONTEXT, CHANCE)
    for depth in range(3):
        log_law = next_log_law(head, target, CONTEXT, draft.tokens[:depth]) / 0.7
        wanted = torch.zeros(SIZES["vocab_size"], dtype=torch.float64)
        wanted[head.target_ids(torch.arange(5))] = log_law.softmax(-1)
        torch.testing.assert_close(draft.laws[depth - 1], wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", sorted(HEADS))
@pytest.mark.parametrize("tree", [Tree(3, 2, 8), Tree(4, 3, 9), Tree(2, 3, 12), Tree(1, 4, 4)])
def test_a_confidence_tree_expands_and_keeps_what_is_likeliest(kind: str, tree: Tree, target: Target, tmp_path: Path) -> None:
    """A tree that grows at the wrong nodes costs as much to verify and is accepted less."""
    head = HEADS[kind](tmp_path / "head", target)
    drafting = observed(EagleDrafter(head, draft_tokens=tree.depth, tree=tree, temperature=0.0), head, target)
    draft = drafting.draft(CONTEXT, CHANCE)
    values: dict[tuple[int, ...], float] = {}
    frontier: list[tuple[int, ...]] = [()]
    for _ in range(tree.depth):
        below = {}
        for path in frontier:
            log_law = next_log_law(head, target, CONTEXT, path)
            best = log_law.topk(tree.topk)
            for token, value in zip(head.target_ids(best.indices).tolist(), best.values.tolist(), strict=True):
                below[*path, token] = values.get(path, 0.0) + value
        values |= below
        frontier = sorted(below, key=lambda path: -below[path])[: tree.topk]
    wanted = sorted(values, key=lambda path: -values[path])[: tree.nodes]
    assert sorted(draft.paths()[1:]) == sorted(wanted)


def test_a_head_is_read_in_every_layout(target: Target, tmp_path: Path) -> None:
    """The same head under another library's names drafts the same tokens, or not at all."""
    folder = eagle3_folder(tmp_path / "hf")
    settings, tensors = eagle3_settings(), load_file(folder / "model.safetensors")
    wanted = load_eagle3(folder, target).head.state_dict()
    renamed = {name.replace("midlayer.", "layers.0."): tensor for name, tensor in tensors.items()}
    layer = {name: settings[name] for name in SIZES} | {"num_hidden_layers": 1, "model_type": "llama", "rms_norm_eps": 1e-6}
    speculators = {
        "speculators_model_type": "eagle3",
        "speculators_config": {"proposal_methods": [{"speculative_tokens": 3}], "verifier": {"name_or_path": "target"}},
        "transformer_layer_config": layer,
        "draft_vocab_size": 5,
        "norm_before_residual": False,
        "eagle_aux_hidden_state_layer_ids": [0, 2, 4],
    }
    t2d = torch.zeros(SIZES["vocab_size"], dtype=torch.bool)
    t2d[[0, 2, 3, 5, 6]] = True
    layouts: dict[str, tuple[dict[str, Any], dict[str, Tensor]]] = {
        "speculators": (speculators, {**renamed, "t2d": t2d}),
        "prefixed": (settings, {name if "lm_head" in name else f"model.{name}": tensor for name, tensor in tensors.items()}),
    }
    for name, (config, state) in layouts.items():
        place = tmp_path / name
        place.mkdir()
        (place / "config.json").write_text(json.dumps(config))
        save_file(state, place / "model.safetensors")
        loaded = load_eagle3(place, target)
        assert loaded.hidden_layers == (0, 2, 4)
        for tensor_name, tensor in loaded.head.state_dict().items():
            torch.testing.assert_close(tensor, wanted[tensor_name])


def test_a_sharded_head_is_one_head(target: Target, tmp_path: Path) -> None:
    """Large heads are published in several files."""
    folder = eagle3_folder(tmp_path / "head")
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {"model-00001-of-00002.safetensors": names[:5], "model-00002-of-00002.safetensors": names[5:]}
    for shard, held in shards.items():
        save_file({name: tensors[name] for name in held}, folder / shard)
    index = {"weight_map": {name: shard for shard, held in shards.items() for name in held}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert load_eagle3(folder, target).head.d2t.tolist() == [0, 1, 1, 2, 2]


@pytest.mark.parametrize("name", sorted(eagle3_tensors(eagle3_settings())))
def test_a_head_that_lacks_a_tensor_is_refused_with_its_name(name: str, target: Target, tmp_path: Path) -> None:
    """VLLM loads a head without d2t, drafts token i for token i, and accepts next to nothing."""
    folder = eagle3_folder(tmp_path / "head")
    tensors = load_file(folder / "model.safetensors")
    del tensors[name]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(BadInputError, match=f"lacks the tensor {name}"):
        load_eagle3(folder, target)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 9}, "made for another target: vocabulary 9, here 7"),
        ({"target_hidden_size": 32}, "target's hidden size 32, here 16"),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 5]}}, r"reads the layers \[1, 2, 5\] of a target with 4"),
        ({"num_hidden_layers": 2}, "the head has 2 layers"),
        ({"fc_norm": True}, "asks for fc_norm"),
        ({"speculators_model_type": "dflash"}, "of kind 'dflash', not eagle3"),
        ({"hidden_size": None}, "lacks or misstates"),
        ({"draft_vocab_size": 4}, r"d2t has shape \[5\], but the configuration says \[4\]"),
    ],
)
def test_a_head_for_something_else_is_refused(change: dict[str, Any], message: str, target: Target, tmp_path: Path) -> None:
    """A head of another model loads where sizes happen to agree, and then only drags."""
    folder = eagle3_folder(tmp_path / "head")
    (folder / "config.json").write_text(json.dumps(eagle3_settings(**change)))
    with pytest.raises(BadInputError, match=message):
        load_eagle3(folder, target)


def test_a_d2t_that_leads_astray_is_refused(target: Target, tmp_path: Path) -> None:
    """Two draft ids for one token, or one beyond the vocabulary."""
    folder = eagle3_folder(tmp_path / "head")
    tensors = load_file(folder / "model.safetensors")
    for wrong in ([0, 0, 0, 0, 3], [0, 0, -1, 0, 0]):
        save_file({**tensors, "d2t": torch.tensor(wrong)}, folder / "model.safetensors")
        with pytest.raises(BadInputError, match="d2t does not lead to 5 tokens"):
            load_eagle3(folder, target)


def test_an_eagle3_head_is_no_eagle1_head_and_the_other_way_round(target: Target, tmp_path: Path) -> None:
    """The wrong --method would read the wrong hidden states."""
    with pytest.raises(BadInputError, match="no EAGLE head of one layer"):
        LoadedEagle1(eagle3_folder(tmp_path / "three"), target)
    with pytest.raises(BadInputError, match=r"fc\.weight has shape \[16, 32\]"):
        load_eagle3(eagle1_folder(tmp_path / "one"), target)


def test_heads_use_the_target_s_parts_where_they_have_none(target: Target, tmp_path: Path) -> None:
    """Published heads leave embeddings out, and the output head where its vocabulary is the target's."""
    folder = eagle3_folder(tmp_path / "head", draft_vocab_size=7)
    tensors = load_file(folder / "model.safetensors")
    own = torch.randn(7, 16)
    save_file({name: each for name, each in tensors.items() if name not in ("d2t", "lm_head.weight")}, folder / "model.safetensors")
    shared = load_eagle3(folder, target)
    assert shared.embedding is target.embedding
    torch.testing.assert_close(shared.head.lm_head.weight.data, target.head)
    save_file({**tensors, "embed_tokens.weight": own}, folder / "model.safetensors")
    torch.testing.assert_close(load_eagle3(folder, target).embedding, own.double())


def test_a_head_reads_its_own_states_behind_the_norm_where_it_was_trained_so(target: Target, tmp_path: Path) -> None:
    """The speculators library trains so by default: read before the norm, every draft but the first is another head's."""
    plain = load_eagle3(eagle3_folder(tmp_path / "plain"), target).head
    normed = load_eagle3(eagle3_folder(tmp_path / "normed", norm_output=True), target).head
    embeddings, hidden = torch.randn(2, 3, 16, dtype=torch.float64).unbind()

    def attend(queries: Tensor, _keys: Tensor, _values: Tensor) -> Tensor:
        return queries.transpose(0, 1).flatten(1)  # what is attended to makes no difference here

    before, behind = (each(embeddings, hidden, positions=torch.arange(3), attend=attend) for each in (plain, normed))
    torch.testing.assert_close(behind, plain.norm(before))
    torch.testing.assert_close(normed.draft_logits(behind), plain.draft_logits(before))


def test_layers_that_nobody_named_are_vllm_s() -> None:
    """Of 32 layers EAGLE-3 reads what layers 2, 16 and 29 leave behind; one off, and a head trained elsewhere is fed strangers."""
    assert default_aux_layers(32) == (2, 16, 29)
    settings = {name: value for name, value in eagle3_settings().items() if name != "eagle_config"}
    assert eagle3_config(settings, target_layers=32).aux_layers == (2, 16, 29)
