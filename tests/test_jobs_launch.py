"""How speculation is switched on in each engine: the arms are alike, the method is named, and acceptance can be measured."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
import yaml

from paceline.errors import BadInputError, UnknownNameError
from paceline.hardware import Dtype
from paceline.jobs.launch import Commands, Gguf, engine_version, known_engines, launch_commands
from paceline.jobs.scenario import Asked, scenario
from paceline.run import Arm
from paceline.servers.batch_ranges import BatchRange
from paceline.speculation.method import Method, Tree

ASKED = Asked(
    target="llama-3.3-70b",
    gpu="h100",
    gpus=4,
    dtype=Dtype.BF16,
    utilisation=0.9,
    method=Method.EAGLE3,
    draft=None,
    draft_tokens=3,
    draft_vocab=None,
    tree=None,
)
LIMITS = {"--max-num-seqs": 64, "--max-num-batched-tokens": 8192}
GGUF = Gguf(target="target.gguf", draft="draft.gguf")
NO_DRAFT = (Method.NGRAM, Method.SUFFIX)


def made(
    engine: str,
    method: Method = Method.EAGLE3,
    *,
    version: str | None = None,
    tree: Tree | None = None,
    table: Sequence[BatchRange] | None = None,
    gguf: Gguf | None = None,
    limits: Mapping[str, int] = LIMITS,
) -> Commands:
    asked = replace(ASKED, method=method, tree=tree, draft_tokens=3 if tree is None else tree.depth)
    if method is Method.DRAFT_MODEL:
        asked = replace(asked, draft="llama-3.2-1b")
    if engine == "llamacpp" and gguf is None:
        gguf = Gguf(target="target.gguf", draft=None if method in NO_DRAFT else "draft.gguf")
    return launch_commands(asked, scenario(asked), engine_version(engine, version), ngram=(2, 4), limits=limits, by_batch=table, gguf=gguf)


def written(commands: Commands) -> str:
    """Both arms as one reads them: the words, and the files they name."""
    lines = []
    for arm, start in commands.starts.items():
        lines += [f"{arm.value}: {start.shell}", *(f"--- {name}\n{text.rstrip()}" for name, text in start.files.items())]
    return "\n".join(lines)


@pytest.mark.parametrize("engine", known_engines())
def test_every_method_of_every_engine_is_switched_on_as_it_was_reviewed(engine: str, golden: Callable[[str, str], None]) -> None:
    """Whoever pastes the command: a flag that changed by accident starts another experiment."""
    parts = []
    for method in Method:
        try:
            text = written(made(engine, method))
        except BadInputError as refused:
            text = f"refused: {refused}"
        parts.append(f"## {method.value}\n{text}")
    golden(f"config/{engine}.txt", "\n\n".join(parts) + "\n")


SPECULATIVE_WORDS = {
    "vllm": {"--speculative-config", "--per-request-spec-decode-metrics"},
    "sglang": {"--speculative-algorithm"},
    "llamacpp": {"--spec-type"},
}


@pytest.mark.parametrize("engine", SPECULATIVE_WORDS)
@pytest.mark.parametrize("method", [Method.EAGLE3, Method.NGRAM, Method.DRAFT_MODEL, Method.MTP])
def test_the_arms_differ_in_speculation_only(engine: str, method: Method) -> None:
    """Whoever compares two servers: any other difference would be counted as the drafts'."""
    starts = made(engine, method).starts
    baseline, speculative = (starts[arm].command for arm in (Arm.BASELINE, Arm.SPECULATIVE))
    assert speculative[: len(baseline)] == baseline
    added = [word for word in speculative[len(baseline) :] if word.startswith("--")]
    assert set(added) >= SPECULATIVE_WORDS[engine]
    assert all("spec" in word for word in added)


def test_tensorrt_llm_s_files_differ_in_speculation_only() -> None:
    """Whoever compares two servers of TensorRT-LLM: the whole configuration is in the files."""
    starts = made("tensorrt_llm").starts
    baseline, speculative = (yaml.safe_load(next(iter(starts[arm].files.values()))) for arm in (Arm.BASELINE, Arm.SPECULATIVE))
    assert {name: value for name, value in speculative.items() if name != "speculative_config"} == baseline
    assert baseline["enable_iter_perf_stats"] is baseline["return_perf_metrics"] is True
    assert (baseline["max_batch_size"], baseline["max_num_tokens"], baseline["tensor_parallel_size"]) == (64, 8192, 4)


def test_sglang_s_running_requests_are_set_in_both_arms() -> None:
    """Whoever leaves them out: SGLang lowers them to 48 while speculating, and the baseline runs hundreds."""
    commands = made("sglang")
    for start in commands.starts.values():
        assert start.command[start.command.index("--max-running-requests") + 1] == "64"
        assert "--enable-metrics" in start.command
    assert any("48" in note for note in commands.notes)


@pytest.mark.parametrize(("tree", "numbers"), [(None, ("3", "1", "4")), (Tree(depth=4, topk=2, nodes=7), ("4", "2", "8"))])
def test_sglang_counts_the_token_before_the_drafts(tree: Tree | None, numbers: tuple[str, ...]) -> None:
    """Whoever writes K as its draft tokens: the last draft of each step is lost (SpecForge#310, sglang#8228)."""
    config = made("sglang", tree=tree).config
    fields = ("--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens")
    assert tuple(config[each] for each in fields) == numbers


def test_sglang_by_version() -> None:
    """Whoever runs an older SGLang: an unknown option stops it at its start."""
    older, newer = made("sglang", Method.NGRAM, version="0.5.6").config, made("sglang", Method.NGRAM, version="0.5.12").config
    assert (older["--speculative-ngram-min-match-window-size"], older["--speculative-ngram-max-match-window-size"]) == ("2", "4")
    assert not any("match-window" in name for name in newer)
    assert newer["--speculative-num-draft-tokens"] == "4"
    with pytest.raises(BadInputError, match=r"from 0\.5\.3 on"):
        made("sglang", Method.NGRAM, version="0.4.6")
    tree = made("sglang", tree=Tree(depth=4, topk=2, nodes=7), version="0.5.12")
    assert any("backend flashinfer" in note for note in tree.notes)


def test_draft_lengths_by_batch_size_in_each_engine() -> None:
    """Whoever switches drafts off under load: each engine has its own form, and some have none."""
    table = ((1, 4, 5), (5, 32, 2), (33, 64, 0))
    assert made("vllm", table=table).config["num_speculative_tokens_per_batch_size"] == [[1, 4, 5], [5, 32, 2], [33, 64, 0]]
    assert any("49548" in note for note in made("vllm", table=table).notes)
    sglang = made("sglang", table=table)
    assert sglang.config["--speculative-num-steps"] == "5"
    assert sglang.config["--speculative-adaptive-config"] in sglang.starts[Arm.SPECULATIVE].files
    assert made("tensorrt_llm", table=table).config == {
        "decoding_type": "Eagle",
        "max_draft_len": 5,
        "draft_len_schedule": {4: 5, 32: 2},
        "speculative_model_dir": "yuhuili/EAGLE3-LLaMA3.3-Instruct-70B",
    }


@pytest.mark.parametrize(
    ("engine", "method", "version", "table", "tree", "said"),
    [
        ("sglang", Method.EAGLE3, "0.5.10", ((1, 64, 5),), None, "0.5.11 or later"),
        ("sglang", Method.NGRAM, None, ((1, 64, 5),), None, "no tree"),
        ("sglang", Method.EAGLE3, None, ((1, 64, 0),), None, "drafts nothing"),
        ("sglang", Method.SUFFIX, None, None, None, "no suffix"),
        ("llamacpp", Method.EAGLE3, None, ((1, 64, 5),), None, "one length"),
        ("llamacpp", Method.EAGLE3, None, None, Tree(depth=2, topk=2, nodes=4), "one length"),
        ("llamacpp", Method.EAGLE2, None, None, None, "has no eagle2"),
        ("tensorrt_llm", Method.EAGLE, None, None, None, "has no eagle "),
        ("tensorrt_llm", Method.SUFFIX, "1.2.1", None, None, "has no suffix"),
        ("tensorrt_llm", Method.EAGLE3, None, ((1, 2, 0), (3, 64, 2)), None, "smallest batch"),
        ("tensorrt_llm", Method.EAGLE3, "1.2.1", None, Tree(depth=2, topk=2, nodes=4), "from 1.3 on"),
        ("tensorrt_llm", Method.MTP, "1.3.0", None, Tree(depth=2, topk=2, nodes=4), "with eagle3"),
        ("vllm", Method.EAGLE3, "0.23.0", ((1, 64, 5),), None, "0.24.0 and later"),
    ],
)
def test_what_an_engine_cannot_do_is_refused(
    engine: str, method: Method, version: str | None, table: Sequence[BatchRange] | None, tree: Tree | None, said: str
) -> None:
    """Whoever asks for it: a server that ignores an option measures something else than was asked."""
    with pytest.raises(BadInputError, match=said):
        made(engine, method, version=version, table=table, tree=tree)


def test_tensorrt_llm_by_version() -> None:
    """Whoever upgrades: fields were renamed, and the older name is unknown, or the newer one was."""
    newer = made("tensorrt_llm", Method.DRAFT_MODEL, version="1.3.0").config
    assert (newer["decoding_type"], newer["speculative_model"]) == ("Draft_Target", "meta-llama/Llama-3.2-1B-Instruct")
    tree = made("tensorrt_llm", version="1.3.0", tree=Tree(depth=3, topk=2, nodes=5)).config
    assert {name: tree[name] for name in ("max_draft_len", "use_dynamic_tree", "dynamic_tree_max_topK", "max_total_draft_tokens")} == {
        "max_draft_len": 3,
        "use_dynamic_tree": True,
        "dynamic_tree_max_topK": 2,
        "max_total_draft_tokens": 5,
    }
    assert made("tensorrt_llm", Method.MTP, version="1.2.1").config == {"decoding_type": "MTP", "num_nextn_predict_layers": 3}
    assert made("tensorrt_llm", Method.MTP, version="1.3.0").config == {"decoding_type": "MTP", "max_draft_len": 3}
    assert made("tensorrt_llm", Method.SUFFIX, version="1.3.0").config == {"decoding_type": "SA", "max_draft_len": 3}


def test_llama_cpp_loads_files_and_a_missing_one_is_said() -> None:
    """Whoever has no GGUF yet: a placeholder that nobody mentions is copied into production."""
    unnamed = made("llamacpp", gguf=Gguf(target=None, draft=None))
    assert "--model TARGET.gguf" in unnamed.baseline
    assert unnamed.draft == "DRAFT.gguf"
    assert sum(".gguf stands" in note for note in unnamed.notes) == 2
    assert "--spec-draft-model" not in made("llamacpp", Method.MTP, gguf=Gguf(target="t.gguf", draft=None)).speculative
    with pytest.raises(BadInputError, match="loads folders"):
        made("vllm", gguf=GGUF)


def test_weights_that_are_not_quantised_at_load_are_noted() -> None:
    """Whoever serves fp8 with TensorRT-LLM: it takes a quantised checkpoint, not an option."""
    asked = replace(ASKED, dtype=Dtype.FP8)
    for engine, word in (("sglang", "--quantization fp8"), ("vllm", "--quantization fp8"), ("tensorrt_llm", "trtllm-serve")):
        commands = launch_commands(asked, scenario(asked), engine_version(engine, None), ngram=(2, 4), limits={})
        assert word in commands.baseline
        assert any("ModelOpt" in note for note in commands.notes) == (engine == "tensorrt_llm")


def test_a_tree_is_a_chain_in_vllm_and_said_so() -> None:
    """Whoever analysed a tree: the command drafts a chain of its depth."""
    commands = made("vllm", tree=Tree(depth=3, topk=2, nodes=5))
    assert commands.config["num_speculative_tokens"] == 3
    assert any("not the tree" in note for note in commands.notes)


@pytest.mark.parametrize(
    ("engine", "text", "shown", "cautioned"),
    [
        ("sglang", "v0.5.23.post1", "0.5.23", False),
        ("sglang", "0.6", "0.6.0", True),
        ("llamacpp", "11434.0.0", "b11434", False),
        ("llamacpp", "b10434", "b10434", True),
        ("tensorrt_llm", "1.2.0rc2", "1.2.0", False),
        ("vllm", "0.32.0", "0.32.0", False),
    ],
)
def test_versions_are_read_as_each_engine_writes_them(engine: str, text: str, shown: str, cautioned: bool) -> None:
    """Whoever has a version that was not read: its options may differ, and that is said."""
    version = engine_version(engine, text)
    assert (str(version), version.caution is not None) == (shown, cautioned)


@pytest.mark.parametrize(("engine", "text"), [("sglang", "latest"), ("llamacpp", "0.5.1"), ("tensorrt_llm", "b11434")])
def test_what_is_no_version_is_refused(engine: str, text: str) -> None:
    """Whoever writes latest: what it stands for changes from day to day."""
    with pytest.raises(BadInputError, match="is no"):
        engine_version(engine, text)
    with pytest.raises(UnknownNameError, match="nearest: vllm"):
        engine_version("vlm", None)


@pytest.mark.parametrize("engine", ["sglang", "llamacpp", "tensorrt_llm"])
def test_a_draft_is_given_where_it_belongs(engine: str) -> None:
    """Whoever gives a lookup a draft: the server would load it for nothing."""
    asked = replace(ASKED, method=Method.NGRAM, draft="some/head")
    with pytest.raises(BadInputError, match="takes no draft"):
        launch_commands(
            asked,
            scenario(asked),
            engine_version(engine, None),
            ngram=(2, 4),
            limits={},
            gguf=GGUF if engine == "llamacpp" else None,
        )
