"""A draft that does not fit its target is told before a server loads either: most of it servers never say."""

from typing import Any

import pytest

from paceline.checkpoint import Checkpoint, TargetIds, TensorHeader, TokenTable
from paceline.servers.checkpoint_pair import pair_findings
from paceline.servers.eagle_head import default_auxiliary_layers
from paceline.servers.lint import Severity
from tests.checkpoints import BODY, HEAD, HEAD_BODY, LLAMA

TABLE = TargetIds(entries=10, lowest=0, highest=31, distinct=10, unmoved=False)
ERROR, WARNING = Severity.ERROR, Severity.WARNING


def checkpoint(
    config: Any, tensors: Any, *, table: TargetIds | None = None, tokens: TokenTable | None = None, name: str = "m"
) -> Checkpoint:
    shapes = None if tensors is None else {each: TensorHeader(*header) for each, header in tensors.items()}
    return Checkpoint(name=name, config=config, tensors=shapes, target_ids=table, tokens=tokens)


def words(*texts: str) -> TokenTable:
    return TokenTable(sha256=" ".join(texts), texts=dict(enumerate(texts)), source="tokenizer.json")


TARGET = checkpoint(LLAMA, BODY, name="Llama")
FIT = checkpoint(HEAD, HEAD_BODY, table=TABLE, name="head")
SMALL = checkpoint(LLAMA | {"num_hidden_layers": 2}, {**BODY, "model.layers.0.mlp.up_proj.weight": ("BF16", (8, 8))})


def found(
    draft: Checkpoint,
    *,
    target: Checkpoint = TARGET,
    engine: str = "vllm",
    version: tuple[int, int, int] | None = (0, 32, 0),
    method: str | None = "eagle3",
    gpus: int | None = 1,
    longest: int | None = None,
) -> list[tuple[Severity, str]]:
    findings = pair_findings(
        target, draft, engine=engine, version=version, method=method, draft_tensor_parallel=gpus, max_model_len=longest
    )
    return [(each.severity, each.code) for each in findings]


def head(config: dict[str, Any] | None = None, tensors: dict[str, Any] | None = None, table: TargetIds | None = TABLE) -> Checkpoint:
    return checkpoint(HEAD | (config or {}), {**HEAD_BODY, **(tensors or {})}, table=table)


def without(tensors: dict[str, Any], name: str) -> dict[str, Any]:
    return {each: header for each, header in tensors.items() if each != name}


def test_pairs_that_fit_are_left_in_peace() -> None:
    """Whoever has a good pair: a false alarm teaches people not to read the next one."""
    assert found(FIT) == []
    assert found(FIT, method=None) == []
    assert found(SMALL, method="draft_model", gpus=2) == []
    assert found(SMALL, method="STANDALONE", engine="sglang", version=None) == []
    assert found(checkpoint({}, None), method="draft_model", target=checkpoint({}, None), gpus=None) == []
    assert found(checkpoint({}, None), target=checkpoint({}, None), gpus=None) == []


def ids(**change: Any) -> TargetIds:
    values: dict[str, Any] = {"entries": 10, "lowest": 0, "highest": 31, "distinct": 10, "unmoved": False}
    return TargetIds(**(values | change))


@pytest.mark.parametrize(
    ("draft", "expected"),
    [
        (head(table=None), (ERROR, "missing_d2t")),
        (head(tensors={"d2t": ("F32", (10,))}, table=None), (ERROR, "d2t_unreadable")),
        (head(table=ids(entries=9, distinct=9)), (ERROR, "d2t_length")),
        (head(table=ids(highest=32)), (ERROR, "d2t_range")),
        (head(table=ids(lowest=-1)), (ERROR, "d2t_range")),
        (head(table=ids(distinct=8)), (WARNING, "d2t_repeats")),
        (head(table=ids(highest=9, unmoved=True)), (WARNING, "d2t_unmoved")),
        (head({"draft_vocab_size": 9}, table=ids(entries=9, distinct=9)), (ERROR, "output_layer_rows")),
    ],
)
def test_a_head_whose_tokens_are_not_the_target_s_is_told(draft: Checkpoint, expected: tuple[Severity, str]) -> None:
    """Whoever exports a head without its table: vLLM loads it without a word and accepts nothing."""
    assert found(draft) == [expected]


def test_a_table_of_ids_instead_of_offsets_is_recognised() -> None:
    """Whoever stores where a token leads instead of how far: the range shows it."""
    findings = pair_findings(TARGET, head(table=ids(highest=40)), engine="vllm", version=None, method="eagle3", draft_tensor_parallel=None)
    assert "seems to hold ids" in findings[0].message


def test_a_head_of_the_whole_vocabulary_needs_no_table() -> None:
    """Whoever trained without a smaller vocabulary: the target's ids are the head's."""
    whole = {"lm_head.weight": ("BF16", (32, 8))}
    assert found(head({"draft_vocab_size": 32}, whole, table=None)) == []
    assert found(head({"draft_vocab_size": 32}, whole, table=ids(entries=32, distinct=32, unmoved=True))) == []


@pytest.mark.parametrize(
    ("config", "tensors", "expected"),
    [
        ({"target_hidden_size": 16}, {}, (ERROR, "hidden_sizes_differ")),
        ({"eagle_aux_hidden_state_layer_ids": [2, 6, 13]}, {}, (ERROR, "auxiliary_layer_out_of_range")),
        ({"eagle_aux_hidden_state_layer_ids": [-1, 6, 9]}, {}, (ERROR, "auxiliary_layer_out_of_range")),
        ({"eagle_aux_hidden_state_layer_ids": [2, 9]}, {}, (ERROR, "fused_width")),
        ({}, {"fc.weight": ("BF16", (8, 32))}, (ERROR, "fused_width")),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 5, 8]}}, {}, (WARNING, "auxiliary_layers_off_by_one")),
    ],
)
def test_a_head_that_listens_to_the_wrong_states_is_told(config: Any, tensors: Any, expected: tuple[Severity, str]) -> None:
    """Whoever takes a head of another target, or numbers layers as their trainer does: nothing checks it, acceptance is low."""
    assert found(head(config, tensors)) == [expected]


def test_sglang_counts_layer_outputs_from_nought() -> None:
    """Whoever serves with SGLang: 1, L/2 − 1 and L − 4 are right there."""
    assert found(head({"eagle_aux_hidden_state_layer_ids": [1, 5, 8]}), engine="sglang", version=(0, 5, 23), method="EAGLE3") == []
    assert default_auxiliary_layers(12) == (2, 6, 9)


def test_what_a_head_shares_with_its_target_has_to_be_of_its_size() -> None:
    """Whoever exports a narrow head without its ends: the target's do not fit."""
    narrow = checkpoint(
        HEAD | {"hidden_size": 4, "target_hidden_size": 8}, without({**HEAD_BODY, "lm_head.weight": ("BF16", (10, 4))}, ""), table=TABLE
    )
    assert found(narrow) == [(ERROR, "missing_embedding")]
    assert found(checkpoint(HEAD, without(HEAD_BODY, "lm_head.weight"), table=TABLE)) == [(ERROR, "missing_output_layer")]
    assert found(checkpoint(HEAD, None)) == []


def test_an_eagle_head_has_two_states_and_the_target_s_ends() -> None:
    """Whoever serves EAGLE of the first kind: it embeds and predicts with the target's layers."""
    config = LLAMA | {"num_hidden_layers": 1}
    eagle = checkpoint(config, {"fc.weight": ("BF16", (8, 16)), "layers.0.mlp.up_proj.weight": ("BF16", (16, 8))})
    assert found(eagle, method="eagle") == []
    assert found(eagle) == [(ERROR, "method_of_another_draft"), (ERROR, "fused_width")]
    assert found(checkpoint({"architectures": ["EagleLlamaForCausalLM"], "hidden_size": 9}, None), method="eagle") == [
        (ERROR, "hidden_sizes_differ")
    ]


@pytest.mark.parametrize(
    ("draft", "method", "engine"),
    [(FIT, "eagle", "vllm"), (FIT, "draft_model", "vllm"), (SMALL, "eagle3", "vllm"), (FIT, "EAGLE", "sglang")],
)
def test_a_method_for_another_kind_of_draft_is_told(draft: Checkpoint, method: str, engine: str) -> None:
    """Whoever writes eagle for an EAGLE-3 head: it crashes late, or runs and accepts nothing."""
    assert (ERROR, "method_of_another_draft") in found(draft, method=method, engine=engine)


def test_names_that_mean_eagle3_elsewhere_are_taken_so() -> None:
    """Whoever serves with TensorRT-LLM: its PyTorch backend calls EAGLE-3 Eagle too; other drafters have no rule here."""
    assert found(FIT, method="Eagle", engine="tensorrt_llm", version=None) == []
    assert found(checkpoint({"architectures": ["DFlashDraftModel"]}, HEAD_BODY), method="dflash", gpus=None) == []


@pytest.mark.parametrize(
    ("kind", "version", "expected"),
    [
        ("eagle3", (0, 10, 0), [(ERROR, "speculators_format")]),
        ("eagle3", (0, 10, 1), []),
        ("eagle3", None, []),
        ("new", (0, 32, 0), [(WARNING, "speculators_format")]),
    ],
)
def test_the_speculators_format_is_read_from_a_version_on(kind: str, version: Any, expected: Any) -> None:
    """Whoever takes a RedHat head on an old vLLM: the config is not understood."""
    assert found(checkpoint({"speculators_model_type": kind}, None), version=version, gpus=None) == expected
    assert found(checkpoint({"speculators_model_type": "eagle3"}, None), engine="sglang", version=version, gpus=None) == [
        (WARNING, "speculators_format")
    ]


@pytest.mark.parametrize(
    ("config", "codes"),
    [
        ({"verifier": {"name_or_path": "Qwen/Qwen3-8B"}}, ["other_verifier"]),
        ({"verifier": {"name_or_path": "org/llama/"}}, []),
        ({"verifier": {"name_or_path": 3}}, []),
        ({"verifier": 3}, []),
        (3, []),
    ],
)
def test_a_head_trained_for_another_model_is_told(config: Any, codes: list[str]) -> None:
    """Whoever mixes up two heads of one width: they load, and accept little."""
    speculator = checkpoint({"speculators_model_type": "eagle3", "speculators_config": config}, None)
    assert [code for _, code in found(speculator, gpus=None)] == codes


def test_a_draft_that_ends_before_its_target_is_told() -> None:
    """Whoever serves 128k with a head of 2k: vLLM read past its end and crashed (vllm#57941), SGLang gets slower."""
    short = head({"max_position_embeddings": 2048})
    assert found(short) == [(ERROR, "draft_shorter_than_target")]
    assert found(short, engine="sglang") == [(WARNING, "draft_shorter_than_target")]
    assert found(short, longest=2048) == []
    model = checkpoint({"max_position_embeddings": 2048}, BODY)
    assert (WARNING, "draft_shorter_than_target") in found(model, method="draft_model")


def test_heads_that_cannot_be_split_are_told() -> None:
    """Whoever splits two attention heads over four GPUs: the server dies at its start."""
    assert found(FIT, gpus=4) == [(ERROR, "draft_heads_do_not_divide")]


def sized(vocab: int, tokens: TokenTable | None) -> Checkpoint:
    return checkpoint(LLAMA | {"vocab_size": vocab}, None, tokens=tokens)


QWEN = words("a", "b")


@pytest.mark.parametrize(
    ("ours", "theirs", "engine", "expected"),
    [
        (sized(152_064, QWEN), sized(151_936, QWEN), "vllm", [(ERROR, "vocabulary_sizes_differ")]),
        (sized(152_064, QWEN), sized(151_936, QWEN), "llamacpp", [(WARNING, "vocabulary_sizes_differ")]),
        (sized(152_064, None), sized(151_936, None), "llamacpp", [(WARNING, "vocabulary_sizes_differ")]),
        (sized(152_064, None), sized(32_002, None), "llamacpp", [(ERROR, "vocabulary_sizes_differ")]),
        (sized(64, QWEN), sized(32, QWEN), "sglang", [(WARNING, "vocabulary_sizes_differ")]),
        (sized(32, QWEN), sized(32, words("b", "a")), "vllm", [(ERROR, "other_tokenizer")]),
        (sized(32, QWEN), sized(32, words("a", "b", "c")), "vllm", []),
    ],
)
def test_vocabularies_are_padded_or_foreign(ours: Checkpoint, theirs: Checkpoint, engine: str, expected: Any) -> None:
    """Whoever pairs Qwen2's 152,064 with its 151,936: padding; with 32,002 another tokenizer (llama.cpp#3812, vllm#7252)."""
    assert found(theirs, target=ours, engine=engine, method="draft_model") == expected


def test_a_few_foreign_tokens_are_no_foreign_tokenizer() -> None:
    """Whoever pairs releases that differ by two special tokens: that works, and is worth a look."""
    ours, theirs = [str(each) for each in range(2000)], [str(each) for each in range(2000)]
    theirs[1999] = "<think>"
    assert found(sized(2000, words(*theirs)), target=sized(2000, words(*ours)), method="draft_model") == [(WARNING, "some_tokens_differ")]


def test_tokenizers_that_cannot_be_looked_into_compare_by_their_hash() -> None:
    """Whoever has SentencePiece files: other bytes are another tokenizer, as far as we can tell; other kinds do not compare."""
    one, other = (TokenTable(sha256=each, texts=None, source="tokenizer.model") for each in "ab")
    assert found(sized(32, other), target=sized(32, one), method="draft_model") == [(ERROR, "other_tokenizer")]
    assert found(sized(32, other), target=sized(32, QWEN), method="draft_model") == []


@pytest.mark.parametrize(
    ("config", "lacks", "codes"),
    [
        ({}, "lm_head.weight", ["missing_tensor"]),
        ({}, "model.embed_tokens.weight", ["missing_tensor"]),
        ({"tie_word_embeddings": True}, "lm_head.weight", []),
        ({"tie_word_embeddings": None, "model_type": "gemma3"}, "lm_head.weight", []),
    ],
)
def test_a_draft_model_is_whole(config: Any, lacks: str, codes: list[str]) -> None:
    """Whoever has half a download: said before the server looks for the tensor."""
    small = without({**BODY, "model.layers.0.mlp.up_proj.weight": ("BF16", (8, 8))}, lacks)
    assert [code for _, code in found(checkpoint(LLAMA | config, small), method="draft_model")] == codes


def test_a_draft_as_large_as_its_target_is_told() -> None:
    """Whoever drafts with the target itself: no acceptance makes that faster."""
    assert found(TARGET, method="draft_model") == [(WARNING, "draft_as_large_as_target")]
