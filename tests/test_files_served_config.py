"""What a server is configured with, read from whatever it is written in; nothing in it is run."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError, PacelineError
from paceline.files.served_config import MOST_BYTES, MOST_LEVELS, MOST_VALUES, read_served_configs
from paceline.servers.lint import ConfigFinding
from paceline.servers.llamacpp.lint import lint as llamacpp_lint
from paceline.servers.llamacpp.lint import llamacpp_version
from paceline.servers.served_config import ServedConfig
from paceline.servers.sglang.lint import lint as sglang_lint
from paceline.servers.sglang.lint import sglang_version
from paceline.servers.tensorrt_llm.lint import lint as tensorrt_llm_lint
from paceline.servers.tensorrt_llm.lint import tensorrt_llm_version

SERVED = Path(__file__).parent / "data" / "served"
SAMPLES = [each for each in sorted(SERVED.iterdir()) if each.suffix in (".yaml", ".sh")]
PUBLISHED = [json.loads(line) for line in (SERVED / "sglang_published.jsonl").read_text(encoding="utf-8").splitlines()]
LINTS: dict[str, Callable[[ServedConfig], tuple[ConfigFinding, ...]]] = {
    "sglang": lambda config: sglang_lint(config, sglang_version("0.5.23")),
    "llamacpp": lambda config: llamacpp_lint(config, llamacpp_version("b11434")),
    "tensorrt_llm": lambda config: tensorrt_llm_lint(config, tensorrt_llm_version("1.3.0")),
}


def read(source: Path | str, engine: str | None = None) -> tuple[ServedConfig, ...]:
    """The servers that it configures."""
    return read_served_configs(source, engine=engine)


def linted(configs: tuple[ServedConfig, ...]) -> list[ConfigFinding]:
    """Everything that is found in them, by the dialects that are read here."""
    return [each for config in configs if config.engine in LINTS for each in LINTS[config.engine](config)]


def test_a_compose_file_s_services_are_read_with_image_environment_and_command() -> None:
    """Whoever keeps both servers in one compose file, with anchors."""
    chat, code = read(SERVED / "compose.yaml")
    assert (chat.engine, chat.target, chat.image) == ("vllm", "meta-llama/Llama-3.1-8B-Instruct", "vllm/vllm-openai:v0.18.0")
    assert chat.speculative is not None
    assert chat.speculative["num_speculative_tokens"] == 3
    assert chat.environment == {"HF_HOME": "/models"}
    assert chat.flags["--tensor-parallel-size"] == "2"
    assert chat.where == "'compose.yaml', services.chat"
    assert (code.engine, code.environment) == ("sglang", {"SGLANG_ENABLE_SPEC_V2": "1"})
    assert code.flags["--speculative-num-steps"] == "4"
    assert code.flags["--speculative-num-draft-tokens"] == "${DRAFT_TOKENS}"


def test_manifests_are_read_document_by_document_and_container_by_container() -> None:
    """Whoever lints what is in the cluster: a config map with the engine's file, a shell's line, plain arguments."""
    trtllm, vllm, llama = read(SERVED / "manifests.yaml")
    assert trtllm.engine == "tensorrt_llm"
    assert trtllm.speculative == {
        "decoding_type": "Eagle3",
        "max_draft_len": 3,
        "speculative_model": "nvidia/Llama-3.3-70B-Instruct-Eagle3",
    }
    assert trtllm.flags == {"--pipeline_parallel_size": "2", "--enable_iter_perf_stats": True}
    assert trtllm.where == "'manifests.yaml', document 1, data.config.yaml[1]"
    assert vllm.speculative == {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}
    assert (vllm.environment, vllm.flags) == ({"SEQS": "64"}, {"--max-num-seqs": "$SEQS"})
    assert vllm.where == "'manifests.yaml', document 2, spec.template.spec.containers[0] ('vllm')"
    assert llama.flags == {"--model": "/models/target.gguf", "--spec-draft-model": "/models/draft.gguf", "--parallel": "4"}


def test_an_engines_own_file_is_read() -> None:
    """Whoever lints what trtllm-serve --config gets."""
    (config,) = read(SERVED / "trtllm.yaml")
    assert config.engine == "tensorrt_llm"
    assert config.speculative is not None
    assert config.speculative["draft_len_schedule"] == {4: 3, 8: 2, 32: 1}
    assert config.flags == {"--enable_iter_perf_stats": True}
    assert linted((config,))[0].code == "penalties_refused"


def test_a_start_script_is_read() -> None:
    """A line with two servers, one in the background."""
    first, second = read(SERVED / "start.sh")
    assert (first.engine, first.environment) == ("vllm", {"VLLM_USE_V1": "1"})
    assert (second.engine, second.flags["--speculative-algorithm"]) == ("sglang", "EAGLE3")


@pytest.mark.parametrize(
    ("text", "engine", "speculative", "flags"),
    [
        ('{"method": "ngram", "num_speculative_tokens": 5}', "vllm", {"method": "ngram", "num_speculative_tokens": 5}, {}),
        ("method: ngram\nnum_speculative_tokens: 5", "vllm", {"method": "ngram", "num_speculative_tokens": 5}, {}),
        ('{"speculative_config": {"method": "mtp"}, "max-num-seqs": 5}', "vllm", {"method": "mtp"}, {"--max-num-seqs": "5"}),
        ("speculative-config: {method: mtp}\nmodel: m", "vllm", {"method": "mtp"}, {"--model": "m"}),
        ("decoding_type: NGram\nmax_draft_len: 2", "tensorrt_llm", {"decoding_type": "NGram", "max_draft_len": 2}, {}),
        ('{"speculative-algorithm": "EAGLE", "speculative_num_steps": 3}', "sglang", None,
         {"--speculative-algorithm": "EAGLE", "--speculative-num-steps": "3"}),
        ('{"--speculative-eagle-topk": 1, "lora-paths": ["a", "b"], "x": {"y": 1}, "n": null, "f": false, "t": true}', "sglang", None,
         {"--speculative-eagle-topk": "1", "--lora-paths": ("a", "b"), "--x": '{"y": 1}', "--t": True}),
        ("spec-type: ngram-mod\nmodel: m", "llamacpp", None, {"--spec-type": "ngram-mod", "--model": "m"}),
        ("args: --model-path m --speculative-algorithm EAGLE", "sglang", None, {"--model-path": "m", "--speculative-algorithm": "EAGLE"}),
    ],
)  # fmt: skip
def test_options_alone_are_read_in_json_and_yaml(text: str, engine: str, speculative: object, flags: dict[str, object]) -> None:
    """Whoever gives what they have: the value of one option, a chart's values, a file of options."""
    (config,) = read(text)
    assert (config.engine, config.speculative, config.flags) == (engine, speculative, flags)


def test_named_configurations_in_one_file_are_read_each() -> None:
    """Two variants side by side, as somebody compared them."""
    first, second = read('{"a": {"speculative-num-steps": 4}, "b": [{"speculative-num-steps": 2}]}')
    assert (first.where, second.where) == ("the command line, a", "the command line, b[0]")


def test_an_engine_that_is_named_leaves_others_out() -> None:
    """Whoever lints one engine of a file with several."""
    assert [each.engine for each in read(SERVED / "compose.yaml", "sglang")] == ["sglang"]
    with pytest.raises(BadInputError, match=r"'trtllm.yaml' configures tensorrt_llm, not vllm; give an engine's options"):
        read(SERVED / "trtllm.yaml", "vllm")
    with pytest.raises(BadInputError, match="engine 'tgi' is none of"):
        read("{}", "tgi")


def test_a_template_is_told_to_be_rendered_first() -> None:
    """Whoever points at a chart: braces are no value, and guessing one would lint something else."""
    with pytest.raises(
        BadInputError, match=r"'helm.yaml', line 4 is not YAML: .*line 4 is a template .*render it first, as with `helm template`"
    ):
        read(SERVED / "helm.yaml")
    with pytest.raises(BadInputError, match="render it first"):
        read("{{- if .Values.on }}\nargs: [a]\n{{- end }}")
    with pytest.raises(BadInputError, match="line 1 is a template"):
        read('{"a": {{ .Values.a }}}')


def test_a_quoted_template_or_variable_stays_open() -> None:
    """What is not known is not judged, and what is known is."""
    words = ["--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "{{ .Values.steps }}", "--speculative-draft-model-path", "$D"]
    found = linted(read(f"args: {json.dumps(words)}"))
    assert {each.field for each in found if each.code == "left_open"} == {"--speculative-num-steps", "--speculative-draft-model-path"}
    assert not [each for each in found if each.code == "bad_value"]


def bomb() -> str:
    """Nine lists of nine aliases each: 9 to the power of 9 values, were they followed."""
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    return "\n".join(lines)


def merges() -> str:
    """Nine mappings that merge the one before nine times each."""
    lines = ["a0: &a0 {k: 1, l: 2}"] + [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, 10)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no server that is known"),
        ("just words", "names no server that is known"),
        ('{"tool": "eagle.evaluation", "depth": 5}', "names no server that is known"),
        ("a: b", "names no server that is known"),
        (bomb(), f"stands for more than {MOST_VALUES} values"),
        (merges(), "names no server that is known"),
        ("a: &a [*a]\nargs: *a", f"is more than {MOST_LEVELS} levels deep"),
        ("a: " + "[" * (MOST_LEVELS + 1) + "]" * (MOST_LEVELS + 1), f"is more than {MOST_LEVELS} levels deep"),
        ("a: " + "[" * 5000, "is not YAML"),
        ("[" * 100_000, "is not JSON: 'maximum recursion"),
        ('{"a": ' * 5000, "is not JSON"),
        ('{"a":', "is not JSON"),
        ('{"a": ' + "9" * 5000 + "}", "is not JSON"),
        ("a: " + "9" * 5000, "is not YAML"),
        ("a: !!python/object/apply:os.system [id]", "is not YAML: .*could not determine a constructor"),
        ("a: !Ref x", "is not YAML"),
        ("a: b\0c", "is not YAML"),
        ("vllm serve \0", "NUL byte"),
        ("a: 'b", "line 1 is not YAML"),
        ("args: --a 'b", "quotation that does not end"),
        ("command: ['sh', '-c', \"vllm 'x\"]", "quotation that does not end"),
        ("? [a]\n: b", "names no server"),
        ("a:\n\tb", "line 2 is not YAML"),
        ("vllm serve 'm", "quotation that does not end"),
        ("x" * (MOST_BYTES + 1), f"longer than {MOST_BYTES} bytes"),
        ('"' * 50_001, "quotation that does not end"),
        ("a: " + "\\'" * 50_000 + "{", "names no server"),
    ],
)  # fmt: skip
def test_what_is_no_configuration_is_refused_soon_and_says_why(text: str, said: str) -> None:
    """Whoever lints a file of a stranger: no crash, no hour of work, nothing run."""
    with pytest.raises(BadInputError, match=said):
        read(text)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """A wrong path, a weights file, a photograph."""
    with pytest.raises(BadInputError, match=r"the configuration .*No such file"):
        read(tmp_path / "absent.yaml")
    with pytest.raises(BadInputError, match=r"the configuration .* cannot be read"):
        read(tmp_path)
    file = tmp_path / "config.yaml"
    file.write_bytes(b"a: \xff")
    with pytest.raises(BadInputError, match="no text in UTF-8: byte 3 is 0xff"):
        read(file)
    file.write_bytes(b" " * (MOST_BYTES + 1))
    with pytest.raises(BadInputError, match="larger than 256 KiB"):
        read(file)


def test_dates_and_environment_forms_are_taken_as_they_are_written() -> None:
    """A tag 2026-01-02 is a name, and a version 0.10 in a list of variables stays."""
    (config,) = read(
        "image: vllm/vllm-openai:2026-01-02\ntag: 2026-01-02\n"
        "env:\n  - A=1\n  - {name: B, value: 2}\n  - {name: C}\n  - 5\nargs: [serve-me, {x: 1}, 3]"
    )
    assert (config.environment, config.target) == ({"A": "1", "B": "2"}, "serve-me")
    (config,) = read("image: lmsysorg/sglang\nenvironment: {A: true, B: null, C: [1], D: 1.5}\ncommand: 5")
    assert config.environment == {"A": "true", "B": "", "D": "1.5"}


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: str(row["path"]).rsplit("/", 1)[-1])
def test_published_configurations_are_linted_without_a_crash(row: dict[str, object]) -> None:
    """They are cut out of documents by a pattern, remains of sentences included."""
    (config,) = read(json.dumps(row["config"]), "sglang")
    assert linted((config,))


PUT = (
    "",
    "\0",
    "'",
    '"',
    "{{",
    "}}",
    "&a",
    "*a",
    ": ",
    "\n",
    "- ",
    "[",
    "]",
    "${X}",
    "\\",
    "!!int ",
    "9" * 5000,
    "\t",
    "|",
    ">",
    "#",
    "\u2028",
)


@settings(max_examples=120, deadline=None)
@given(source=st.sampled_from(SAMPLES), at=st.integers(0, 3000), length=st.integers(0, 60), put=st.sampled_from(PUT))
def test_a_damaged_configuration_is_refused_or_read_and_linted(source: Path, at: int, length: int, put: str) -> None:
    """Whoever edits a manifest by hand: an error that says so, at worst."""
    text = source.read_text(encoding="utf-8")
    at %= len(text)
    try:
        linted(read(text[:at] + put + text[at + length :]))
    except PacelineError:
        return
