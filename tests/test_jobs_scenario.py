"""From typed names to a scenario and its launch commands."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from paceline.errors import BadInputError, UnknownNameError
from paceline.hardware import Dtype
from paceline.jobs.launch import launch_commands
from paceline.jobs.scenario import Asked, config_hashes, default_dtype, own_tokenizer, resolved_model, scenario
from paceline.servers.vllm.versions import vllm_version
from paceline.speculation.method import Method

ASKED = Asked(
    target="llama-3.3-70b",
    gpu="h100",
    gpus=None,
    dtype=Dtype.BF16,
    utilisation=0.9,
    method=Method.EAGLE3,
    draft=None,
    draft_tokens=3,
    draft_vocab=None,
    tree=None,
)
CONFIG = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}
VERSION = vllm_version("0.32.0")


def config_folder(folder: Path, **changed: int) -> Path:
    """A checkpoint's folder with nothing but its config.json."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG | changed), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("target", "dtype", "gpus"),
    [("llama-3.1-8b", Dtype.BF16, 1), ("llama-3.3-70b", Dtype.BF16, 4), ("llama-3.3-70b", Dtype.FP8, 2), ("qwen2.5-0.5b", Dtype.BF16, 1)],
)
def test_the_fewest_gpus_that_leave_room_are_chosen(target: str, dtype: Dtype, gpus: int) -> None:
    """141 GB of weights fit two 80 GB GPUs and leave nothing to serve from; twice the GPUs that are needed are twice the bill."""
    found = scenario(replace(ASKED, target=target, dtype=dtype))
    assert found.where.gpus == gpus
    pool = found.memory(context_tokens=1).speculative_pool_bytes
    assert pool >= 0.25 * found.where.gpu.memory_bytes * 0.9


def test_what_was_typed_is_taken_even_where_it_is_tight() -> None:
    """Whoever has two GPUs wants to know about two."""
    assert scenario(replace(ASKED, gpus=2)).where.gpus == 2
    with pytest.raises(BadInputError, match="GB for weights on each of"):
        scenario(replace(ASKED, gpus=1))


def test_a_target_that_only_fits_tightly_takes_the_most_gpus_it_can_be_split_over(tmp_path: Path) -> None:
    """Heads that eight GPUs do not divide must not hide that one GPU holds the model: 9 heads, some 63 of 72 GB."""
    folder = config_folder(tmp_path / "odd", hidden_size=9 * 448, num_attention_heads=9, num_key_value_heads=3, num_hidden_layers=125)
    found = scenario(replace(ASKED, target=str(folder), method=Method.NGRAM))
    assert found.where.gpus == 1
    room = found.memory(context_tokens=1).speculative_pool_bytes
    assert 0 < room < 0.25 * found.where.gpu.memory_bytes * 0.9


def test_a_target_that_fits_nowhere_is_refused(tmp_path: Path) -> None:
    """A forecast for a server that cannot start is worse than none."""
    folder = config_folder(tmp_path / "huge", num_hidden_layers=9000)
    with pytest.raises(BadInputError, match="GB for weights on each of"):
        scenario(replace(ASKED, target=str(folder)))


def test_a_folder_and_its_config_are_the_model_under_the_folders_name(tmp_path: Path) -> None:
    """Reports on three checkpoints that are all called 'llama' cannot be told apart."""
    folder = config_folder(tmp_path / "my-8b")
    assert resolved_model(str(folder)) == resolved_model(str(folder / "config.json"))
    assert resolved_model(str(folder)).name == "my-8b"
    known = resolved_model("llama-3.1-8b")
    assert replace(known, name="my-8b", source="config.json") == resolved_model(str(folder))


def test_a_name_that_is_neither_is_refused_with_the_nearest() -> None:
    """A name of any length is a typing error, and no fault of the file system's."""
    with pytest.raises(UnknownNameError, match=r"nearest: Llama-3\.3-70B"):
        resolved_model("llama-3.3-70bb")
    with pytest.raises(UnknownNameError):
        resolved_model("x" * 5000)


def test_the_draft_is_the_methods_own() -> None:
    """A head is priced by the target's size, a draft model by its own, and n-gram is free."""
    head = scenario(ASKED).draft
    assert head is not None
    assert round(head.parameters / 1e9, 3) == 1.403
    smaller = scenario(replace(ASKED, draft_vocab=8000)).draft
    assert smaller is not None
    assert smaller.parameters < head.parameters
    assert scenario(replace(ASKED, method=Method.NGRAM)).draft is None
    named = scenario(replace(ASKED, method=Method.DRAFT_MODEL, draft="llama-3.2-1b")).draft
    assert named is not None
    assert "Llama-3.2-1B" in named.name
    with pytest.raises(BadInputError, match="draft"):
        scenario(replace(ASKED, method=Method.DRAFT_MODEL))


def test_both_commands_differ_in_speculation_only() -> None:
    """A second difference between the arms would be measured as speculation's doing."""
    made = launch_commands(ASKED, scenario(ASKED), VERSION, ngram=(2, 4), limits={"--max-num-seqs": 64})
    placed = "--tensor-parallel-size 4 --gpu-memory-utilization 0.9 --max-num-seqs 64"
    assert made.baseline == f"vllm serve meta-llama/Llama-3.3-70B-Instruct {placed}"
    assert made.speculative.startswith(f"{made.baseline} --speculative-config ")
    assert made.config["method"] == "eagle3"
    assert made.draft == made.config["model"]
    assert any(str(made.draft) in note and "licence" in note for note in made.notes)


def test_what_the_command_cannot_say_of_the_weights_is_noted(tmp_path: Path) -> None:
    """A verdict on int4 and a command for bf16 describe two servers, and the second does not start."""
    int4 = replace(ASKED, dtype=Dtype.INT4)
    made = launch_commands(int4, scenario(int4), VERSION, ngram=(2, 4), limits={})
    assert "--quantization" not in made.baseline
    assert any("int4" in note for note in made.notes)
    config = config_folder(tmp_path / "my-8b") / "config.json"
    asked = replace(ASKED, target=str(config))
    started = launch_commands(asked, scenario(asked), VERSION, ngram=(2, 4), limits={}).baseline
    assert f" {config.parent} " in started, "a server loads the folder, not its config.json"


def test_a_draft_that_is_not_known_is_left_to_be_filled_in_and_said(tmp_path: Path) -> None:
    """A placeholder that nobody mentions is copied into production."""
    folder = config_folder(tmp_path / "my-8b")
    asked = replace(ASKED, target=str(folder))
    made = launch_commands(asked, scenario(asked), VERSION, ngram=(2, 4), limits={})
    assert made.draft == "DRAFT"
    assert any("DRAFT" in note for note in made.notes)
    assert str(folder) in made.baseline
    own = replace(asked, draft="/heads/mine")
    assert launch_commands(own, scenario(own), VERSION, ngram=(2, 4), limits={}).config["model"] == "/heads/mine"


def test_a_draft_model_is_named_as_its_repository_and_ngram_by_its_lengths() -> None:
    """A server loads no 'llama-3.2-1b'."""
    asked = replace(ASKED, method=Method.DRAFT_MODEL, draft="llama-3.2-1b")
    assert launch_commands(asked, scenario(asked), VERSION, ngram=(2, 4), limits={}).draft == "meta-llama/Llama-3.2-1B-Instruct"
    asked = replace(ASKED, method=Method.NGRAM)
    made = launch_commands(asked, scenario(asked), VERSION, ngram=(2, 4), limits={})
    assert made.draft is None
    assert (made.config["prompt_lookup_min"], made.config["prompt_lookup_max"]) == (2, 4)


def test_a_version_with_a_caution_says_so() -> None:
    """A version whose rules are extrapolated must not look like one that was read."""
    newer = vllm_version("0.99.0")
    assert newer.caution is not None
    assert newer.caution.message in launch_commands(ASKED, scenario(ASKED), newer, ngram=(2, 4), limits={}).notes


@pytest.mark.parametrize(
    ("more", "dtype"),
    [
        ({"torch_dtype": "bfloat16"}, Dtype.BF16),
        ({}, Dtype.BF16),
        ({"quantization_config": {"quant_method": "fp8"}}, Dtype.FP8),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, Dtype.INT4),
        ({"text_config": {"quantization_config": {"quant_method": "mxfp4"}}}, Dtype.FP4),
    ],
)
def test_weights_that_were_not_asked_for_are_those_of_the_config(tmp_path: Path, more: dict[str, object], dtype: Dtype) -> None:
    """A bfloat16 checkpoint priced as fp8 is priced at half its bytes."""
    config = config_folder(tmp_path / "my-8b") / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text("utf-8")) | more), encoding="utf-8")
    assert default_dtype(str(config)) is default_dtype(str(config.parent)) is dtype
    assert default_dtype("llama-3.3-70b") is Dtype.FP8


@pytest.mark.parametrize("quantised", [{"quant_method": "gptq", "bits": 8}, {"quant_method": "bitsandbytes"}, "fp8"])
def test_weights_of_which_the_config_says_too_little_are_asked_for(tmp_path: Path, quantised: object) -> None:
    """A guess about bytes per weight is a guess about everything."""
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": quantised}), encoding="utf-8")
    with pytest.raises(BadInputError, match="give --dtype"):
        default_dtype(str(tmp_path))


def test_a_config_is_named_with_its_hash(tmp_path: Path) -> None:
    """Which config was it? The target's name is its folder's, and folders change."""
    config = config_folder(tmp_path / "my-8b") / "config.json"
    digest = hashlib.sha256(config.read_bytes()).hexdigest()
    assert config_hashes(replace(ASKED, target=str(config.parent))) == {"my-8b/config.json": digest}
    assert config_hashes(replace(ASKED, draft=str(config))) == {"my-8b/config.json": digest}
    assert config_hashes(ASKED) == {}


def test_a_head_on_disk_brings_its_own_vocabulary_and_sizes(tmp_path: Path) -> None:
    """Whoever trained a head of 2,048 tokens: it is not priced as one of 32,000, and a typed vocabulary that is not its own is refused."""
    head = config_folder(tmp_path / "head", draft_vocab_size=2048, intermediate_size=1024)
    asked = replace(ASKED, target="llama-3.1-8b", draft=str(head))
    implied, found = scenario(replace(asked, draft=None, draft_vocab=2048)).draft, scenario(asked).draft
    assert implied is not None
    assert found is not None
    assert implied.parameters - found.parameters == 3 * 4096 * (14336 - 1024)
    assert found.integer_bytes == 2048 * 8 + 128256
    assert scenario(replace(asked, draft_vocab=2048)).draft == found
    with pytest.raises(BadInputError, match=r"--draft-vocab 32000 contradicts .* 'head', which drafts from 2048 tokens"):
        scenario(replace(asked, draft_vocab=32_000))


def test_a_head_that_states_nothing_is_the_methods_own(tmp_path: Path) -> None:
    """Whoever has a head of an old layout: what its config.json leaves out is what such heads have."""
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    asked = replace(ASKED, target="llama-3.1-8b")
    assert scenario(replace(asked, draft=str(tmp_path))).draft == scenario(asked).draft
    assert scenario(replace(asked, draft=str(tmp_path), draft_vocab=99)).draft == scenario(replace(asked, draft_vocab=99)).draft


def test_a_target_on_disk_brings_its_tokenizer(tmp_path: Path) -> None:
    """Whoever names the target's folder: its tokens are counted, not bytes."""
    target = config_folder(tmp_path / "target")
    assert own_tokenizer(str(target)) is None
    (target / "tokenizer.json").write_text("{}", encoding="utf-8")
    assert own_tokenizer(str(target)) == own_tokenizer(str(target / "config.json")) == target / "tokenizer.json"
    assert own_tokenizer("llama-3.1-8b") is None
