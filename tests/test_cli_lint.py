"""Lint from the command line: where a configuration comes from, which engine judges it, and how it exits."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from paceline.cli.main import build_parser
from paceline.servers.vllm.lint_combinations import request_features
from tests import checkpoints
from tests.conftest import Answer

Paceline = Callable[[Sequence[str]], Answer]
CONFIGS = Path(__file__).parent / "data" / "speculation_configs.jsonl"
VLLM = ("lint", "--engine", "vllm", "--engine-version", "0.32.0")
NGRAM = '{"method": "ngram", "num_speculative_tokens": 4}'
TYPO = '{"method": "ngram", "num_spec_tokens": 4}'
MANIFEST = """
services:
  plain: {image: "vllm/vllm-openai:v0.32.0", command: [--model, org/large]}
  drafting: {image: "vllm/vllm-openai:v0.32.0", command: [--model, org/large, --speculative-config, '{"method": "ngram"}']}
"""


def codes(answer: Answer) -> list[str]:
    """The codes of the errors."""
    return [each["code"] for each in json.loads(answer.out)["findings"] if each["severity"] == "error"]


def test_an_error_exits_with_one_and_a_sound_configuration_with_nought(paceline: Paceline) -> None:
    """Whoever gates a deployment on it: the exit code is the answer."""
    assert paceline([*VLLM, "--speculative-config", NGRAM]).code == 0
    refused = paceline([*VLLM, "--speculative-config", TYPO])
    assert refused.code == 1
    assert "write num_speculative_tokens" in refused.out


def test_a_file_a_command_line_and_the_option_say_the_same(paceline: Paceline, tmp_path: Path) -> None:
    """Whoever keeps the JSON in a file, or only has the command: nothing has to be taken apart by hand."""
    file = tmp_path / "speculation.json"
    file.write_text(TYPO, "utf-8")
    ways = [["--speculative-config", TYPO], [str(file)], ["--", "vllm", "serve", "org/large", "--speculative-config", TYPO]]
    ways.append(["--speculative-config", TYPO, "--", "vllm", "serve", "org/large"])
    answers = [paceline([*VLLM, "--json", *each]) for each in ways]
    assert [codes(each) for each in answers] == [["unknown_key", "missing_draft_tokens"]] * 4


def test_rules_of_another_version_than_the_image_are_said_to_be_that(paceline: Paceline, tmp_path: Path) -> None:
    """Whoever raises --engine-version and forgets the manifest, or the other way round: green for a server that never starts."""
    file = tmp_path / "compose.yaml"
    file.write_text(MANIFEST, "utf-8")
    assert "another_version" not in paceline([*VLLM, str(file)]).out
    older = paceline(["lint", "--engine", "vllm", "--engine-version", "0.18.0", str(file)]).out
    assert older.count("another_version") == 2
    assert "lint with --engine-version 0.32.0" in older
    words = ["--", "docker", "run", "lmsysorg/sglang:v0.5.5", "python3", "-m", "sglang.launch_server", "--model-path", "x"]
    assert "another_version" in paceline(["lint", "--engine", "sglang", "--engine-version", "0.5.23", *words]).out


def test_each_server_of_a_manifest_is_told_apart(paceline: Paceline, tmp_path: Path) -> None:
    """Whoever lints a compose file: which of its services it is."""
    file = tmp_path / "compose.yaml"
    file.write_text(MANIFEST, "utf-8")
    found = json.loads(paceline([*VLLM, "--json", str(file)]).out)["findings"]
    places = {each["code"]: each["where"] for each in found}
    assert "plain" in places["no_speculation"]
    assert "drafting" in places["missing_draft_tokens"]


@pytest.mark.parametrize("words", [[], ["--speculative-config", NGRAM, "file.json"], ["missing.json"], ["--", "ls", "-l"]])
def test_what_is_no_configuration_is_refused(words: list[str], paceline: Paceline) -> None:
    """Whoever forgets the file: no finding would look like a clean bill."""
    assert paceline([*VLLM, *words]).code == 2


@pytest.mark.parametrize(
    ("engine", "version", "words", "code"),
    [
        ("sglang", "0.5.10", ["sglang", "serve", "--model-path", "m", "--speculative-algorithm", "EAGLE9"], "unknown_method"),
        ("llamacpp", "11434", ["llama-server", "-m", "m.gguf", "--draft-max", "4"], "removed"),
    ],
)
def test_other_engines_are_judged_by_their_own_rules(engine: str, version: str, words: list[str], code: str, paceline: Paceline) -> None:
    """Whoever serves with another engine: the same verb, that engine's rules."""
    answer = paceline(["lint", "--engine", engine, "--engine-version", version, "--json", "--", *words])
    assert code in codes(answer)


def test_what_requests_use_is_for_vllm(paceline: Paceline) -> None:
    """Whoever asks another engine for it: an option without effect would look like a check that passed."""
    asked = ["lint", "--engine", "sglang", "--engine-version", "0.5.10", "--requests-use", "n"]
    assert paceline([*asked, "--", "sglang", "serve", "--speculative-algorithm", "EAGLE3"]).code == 2


def test_the_features_that_requests_may_use_are_those_of_the_table() -> None:
    """Whoever adds a feature to the table: it can be said of requests too."""
    text = build_parser().verbs["lint"].format_help()
    offered = re.search(r"--requests-use \{(.*?)\}", text, re.DOTALL)
    assert offered is not None
    assert tuple(sorted(re.sub(r"\s", "", offered[1]).split(","))) == request_features()


def test_folders_that_the_configuration_names_are_looked_into(paceline: Paceline, tmp_path: Path) -> None:
    """Whoever has both models at hand: what does not fit is told without naming the folders twice."""
    target = checkpoints.folder(tmp_path / "target", checkpoints.LLAMA | {"max_position_embeddings": 4096}, None)
    draft = checkpoints.folder(tmp_path / "draft", checkpoints.LLAMA | {"vocab_size": 64}, None)
    stated = json.dumps({"method": "draft_model", "model": str(draft), "num_speculative_tokens": 3})
    assert codes(paceline([*VLLM, "--json", "--", "vllm", "serve", str(target), "--speculative-config", stated])) == [
        "vocabulary_sizes_differ"
    ]
    named = stated.replace(str(draft), "org/draft")
    both = ["--target", str(target), "--draft", str(draft)]
    assert codes(paceline([*VLLM, "--json", *both, "--speculative-config", named])) == ["vocabulary_sizes_differ"]
    (draft / "config.json").unlink()
    broken = paceline([*VLLM, "--json", "--speculative-config", stated])
    assert codes(broken) == ["unreadable_checkpoint"]
    assert paceline([*VLLM, *both, "--speculative-config", named]).code == 2
    lookup = json.dumps({"method": "ngram", "model": str(draft), "num_speculative_tokens": 3})
    assert codes(paceline([*VLLM, "--json", "--speculative-config", lookup])) == []


def test_a_head_is_held_against_its_target(paceline: Paceline, tmp_path: Path) -> None:
    """Whoever forgets d2t: vLLM loads the head and it accepts nothing."""
    target = checkpoints.folder(tmp_path / "target", checkpoints.LLAMA, checkpoints.BODY)
    head = checkpoints.folder(tmp_path / "head", checkpoints.HEAD, checkpoints.HEAD_BODY)
    stated = json.dumps({"method": "eagle3", "model": str(head), "num_speculative_tokens": 3})
    words = ["--", "vllm", "serve", str(target), "--max-model-len", "2048", "--speculative-config", stated]
    assert "missing_d2t" in codes(paceline([*VLLM, "--json", *words]))


def test_every_published_configuration_is_linted(paceline: Paceline, tmp_path: Path) -> None:
    """Whoever lints what others published: a finding or none, never a stack trace."""
    versions = {"vllm": "0.32.0", "sglang": "0.5.23"}
    rows: list[dict[str, Any]] = [json.loads(line) for line in CONFIGS.read_text("utf-8").splitlines()]
    assert len(rows) == 108
    file = tmp_path / "config.json"
    for row in rows:
        file.write_text(json.dumps(row["config"]), "utf-8")
        answer = paceline(["lint", "--engine", row["engine"], "--engine-version", versions[row["engine"]], "--json", str(file)])
        assert answer.code in (0, 1), (row, answer.err)
        assert all(each["remedy"] for each in json.loads(answer.out)["findings"])


@pytest.mark.parametrize(
    ("words", "code", "field"),
    [
        (["--speculative-config", "$SPEC"], "left_open", "--speculative-config"),
        (["--speculative-config", '{"method": "ngram", "num_speculative_tokens": $K}'], "left_open", "--speculative-config"),
        (["--speculative-config", '{"method": "$M", "num_speculative_tokens": 4, "prompt_lookup_max": 3}'], "left_open", "method"),
        (["$MORE"], "left_open", None),
        (["${MORE[@]}"], "left_open", None),
        (["--config", "serve.yaml"], "config_elsewhere", "--config"),
        (["--speculative-config", ""], "no_speculation", "--speculative-config"),
        (["--speculative-config", "null"], "no_speculation", "--speculative-config"),
        (["--speculative-config", TYPO, "--speculative-config", NGRAM], "given_twice", "--speculative-config"),
        (["--speculative-conf", NGRAM], "default_ngram_window", "prompt_lookup_max"),
    ],
)
def test_what_a_server_would_take_or_nobody_can_tell_is_no_error(
    words: list[str], code: str, field: str | None, paceline: Paceline
) -> None:
    """Whoever lints a chart or a script in CI: a pipeline that goes red over a variable is switched off."""
    answer = paceline([*VLLM, "--json", "--", "vllm", "serve", "org/large", *words])
    found = [(each["code"], each["field"]) for each in json.loads(answer.out)["findings"]]
    assert (answer.code, found[0]) == (0, (code, field)), found


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--speculativ-config", NGRAM], "unknown_flag"),
        (["--spec-m", "ngram"], "unknown_flag"),
        (["-sc.method", "ngram", "-sc.num_speculative_tokens", "0"], "out_of_range"),
        (["--speculative-config", NGRAM, "--speculative-config", TYPO], "unknown_key"),
    ],
)
def test_an_option_is_read_as_the_server_s_own_parser_does(words: list[str], code: str, paceline: Paceline) -> None:
    """Whoever mistypes the option itself: vLLM does not start, and lint must not say that all is well."""
    answer = paceline([*VLLM, "--json", "--", "vllm", "serve", "org/large", *words])
    assert (answer.code, codes(answer)[0]) == (1, code), answer.out


@pytest.mark.parametrize("key", ["speculative-config", "speculative_config", "speculativeConfig"])
def test_the_json_of_a_configuration_file_of_vllm_is_read_as_text_too(key: str, paceline: Paceline, tmp_path: Path) -> None:
    """Whoever serves with --config: the file's speculation is as good as the option's."""
    file = tmp_path / "serve.yaml"
    file.write_text(f"model: org/large\n{key}: '{TYPO}'\n", "utf-8")
    assert codes(paceline([*VLLM, "--json", str(file)])) == ["unknown_key", "missing_draft_tokens"]
    file.write_text(f"model: org/large\n{key}.method: ngram\n{key}.num_spec_tokens: 4\n", "utf-8")
    assert codes(paceline([*VLLM, "--json", str(file)])) == ["unknown_key", "missing_draft_tokens"]


@pytest.mark.parametrize(
    ("version", "more"),
    [
        ("0.15.0", '"method": "draft_model"'),
        ("0.32.0", '"method": "draft_model", "parallel_drafting": true'),
        ("0.32.0", '"method": "draft_model", "use_heterogeneous_vocab": true'),
        ("0.32.0", '"method": "eagle3", "parallel_drafting": true'),
    ],
)
def test_unpadded_drafts_are_refused_where_the_server_refuses_them(version: str, more: str, paceline: Paceline) -> None:
    """Whoever switches padding off for EAGLE and then changes the method: the server ends after it has loaded the model."""
    block = f'{{"model": "d", "num_speculative_tokens": 4, "disable_padded_drafter_batch": true, {more}}}'
    answer = paceline(["lint", "--engine-version", version, "--speculative-config", block, "--json"])
    assert codes(answer) == ["padded_drafts_needed"], answer.out


@pytest.mark.parametrize(
    ("engine", "program"), [("sglang", "sglang serve"), ("llamacpp", "llama-server"), ("tensorrt_llm", "trtllm-serve m")]
)
def test_a_variable_that_may_hold_any_options_is_no_plain_server(engine: str, program: str, paceline: Paceline, tmp_path: Path) -> None:
    """Whoever starts servers with a script's "$@": lint does not vouch for what it did not see."""
    file = tmp_path / "serve.sh"
    version = {"sglang": "0.5.23", "llamacpp": "b11434", "tensorrt_llm": "1.3.0"}[engine]
    file.write_text(f'{program} "$@"\n', "utf-8")
    answer = paceline(["lint", "--engine", engine, "--engine-version", version, str(file), "--json"])
    found = [each["code"] for each in json.loads(answer.out)["findings"]]
    assert (answer.code, "left_open" in found, "no_speculation" in found) == (0, True, False), found
