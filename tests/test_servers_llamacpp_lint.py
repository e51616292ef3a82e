"""What llama-server does with a configuration. Against the real one: tests/real/test_lint_is_llamacpps.py."""

import pytest

from paceline.servers.command_line import served_script
from paceline.servers.lint import ConfigFinding, Severity
from paceline.servers.llamacpp.lint import lint, llamacpp_version

DRAFT = "--spec-type draft-simple -md d.gguf --metrics"


def found(options: str, version: str = "b11434", *, before: str = "") -> dict[str, ConfigFinding]:
    """What is found by code, the last of each."""
    (config,) = served_script(f"{before} llama-server -m m.gguf {options}", engine=None, where="here")
    return {each.code: each for each in lint(config, llamacpp_version(version))}


@pytest.mark.parametrize(
    "options",
    [
        DRAFT,
        f"{DRAFT} --spec-draft-n-max 8 --spec-draft-n-min 2 --spec-draft-p-split .2 -np 4 -fa on -ctkd q8_0",
        "--spec-type ngram-mod,ngram-simple --spec-ngram-mod-n-match 24 --metrics",
        "--spec-default --metrics",
        "--spec-type draft-simple,ngram-mod -hfd a/b --metrics",
        "--spec-type draft-mtp -md d.gguf --metrics",
        "--spec-type $T --metrics",
    ],
)
def test_a_good_configuration_is_clean(options: str) -> None:
    """Whoever lints before each deployment stops reading warnings that are none."""
    assert {code for code in found(options) if code != "left_open"} == set()


@pytest.mark.parametrize(
    ("options", "code", "severity"),
    [
        ("", "no_speculation", "info"),
        ("-md d.gguf", "not_switched_on", "error"),
        ("--spec-type none -md d.gguf", "not_switched_on", "error"),
        ("--spec-draft-n-max 4", "not_switched_on", "error"),
        ("--spec-type draft-simple,none -md d.gguf", "not_switched_on", "error"),
        ("--spec-type draft-simple", "draft_missing", "error"),
        ("--spec-type draft-mtp", "draft_from_target", "info"),
        ("--spec-type ngram-mod -md d.gguf", "ignored", "warning"),
        (f"{DRAFT} --spec-draft-n-min 8 --spec-draft-n-max 4", "no_drafts", "error"),
        (f"{DRAFT} --spec-draft-n-min 4", "no_drafts", "error"),
        (f"{DRAFT} --spec-draft-p-min 1.5", "no_drafts", "error"),
        (f"{DRAFT} --spec-draft-p-min 0.75", "greedy_draft_only", "info"),
        (f"{DRAFT} --spec-draft-n-max 0", "depth_wasted", "warning"),
        (f"{DRAFT} --embedding", "embeddings", "warning"),
        ("--spec-type ngram-mod", "no_metrics", "info"),
        (f"{DRAFT} --spec-synth-len 2.5", "synthetic_acceptance", "error"),
        (f"{DRAFT} --spec-synth-len 9", "synthetic_out_of_range", "error"),
        (f"{DRAFT} --spec-synth-len 0.5", "synthetic_out_of_range", "error"),
        (f"{DRAFT} --spec-draft-n-max 8 --spec-synth-len 9.5", "synthetic_out_of_range", "error"),
        (f"{DRAFT} --spec-synth-rates .9,.8", "synthetic_out_of_range", "error"),
        (f"{DRAFT} --spec-synth-rates .7,.8,.9", "synthetic_out_of_range", "error"),
        (f"{DRAFT} --spec-synth-rates 1.7,.8,.6", "synthetic_out_of_range", "error"),
        (f"{DRAFT} --spec-synth-rates .9,x,.6", "synthetic_out_of_range", "error"),
        ("--spec-synth-len 2.5", "synthetic_out_of_range", "error"),
        (f"{DRAFT} --spec-synth-len 2 --spec-synth-rates .9,.8,.7", "synthetic_both", "error"),
        (f"{DRAFT} --draft-max 8", "removed", "error"),
        (f"{DRAFT} --spec-draft-nmax 8", "unknown_flag", "error"),
        (f"{DRAFT} --quux-zzz", "unknown_flag", "error"),
        (f"{DRAFT} --spec-draft-n-max=8", "unknown_flag", "error"),
        (f"{DRAFT} --jinja 1", "bad_value", "error"),
        (f"{DRAFT} --temp", "bad_value", "error"),
        (f"{DRAFT} -np 0", "bad_value", "error"),
        ("--spec-type eagle3 -md d.gguf", "bad_value", "error"),
    ],
)  # fmt: skip
def test_what_the_server_refuses_ignores_or_does_not_draft_is_told(options: str, code: str, severity: str) -> None:
    """It is silent itself: health is ok, the draft takes memory, and nothing is drafted."""
    told = found(options)
    assert code in told, list(told)
    assert told[code].severity == severity


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (f"{DRAFT} --spec-synth-len 4", "synthetic_out_of_range"),
        (f"{DRAFT} --spec-synth-rates .9,.8,.7", "synthetic_out_of_range"),
        (f"{DRAFT} --spec-synth-rates $R", "synthetic_out_of_range"),
        ("--spec-type ngram-mod --spec-synth-len 9", "synthetic_out_of_range"),
        ("--spec-type $T --spec-synth-len 9", "synthetic_out_of_range"),
        (f"{DRAFT} --spec-draft-n-max $N --spec-synth-len 9", "synthetic_out_of_range"),
        (f"{DRAFT} --spec-draft-n-min 4 --spec-draft-n-max $N", "no_drafts"),
        (f"{DRAFT} --$FLAG", "unknown_flag"),
    ],
)
def test_what_the_server_takes_or_nobody_knows_is_not_told(options: str, code: str) -> None:
    """A good configuration is not kept back."""
    assert code not in found(options)


def test_older_builds_have_the_older_options() -> None:
    """Before the options were renamed, -md alone was enough, and --draft-max was right."""
    old = "-md d.gguf --draft-max 8 --mine-x"
    assert {code for code, each in found(old, "b8000").items() if each.severity is Severity.ERROR} == set()
    assert {code for code, each in found(old, "b9000").items() if each.severity is Severity.ERROR} == set()
    assert found(old, "b9174")["removed"].since == "9174"
    assert found("--spec-draft-n-max 3", "b8000")["not_yet"].until == "8651"
    assert found("-fa", "b8000") == {}
    assert found("-fa", "b11434")["bad_value"].field == "--flash-attn"


def test_a_variable_stands_for_its_option() -> None:
    """Containers are configured so, and a removed option's variable ends the server as the option does."""
    assert set(found("-md d.gguf --metrics", before="LLAMA_ARG_SPEC_TYPE=draft-simple LLAMA_ARG_JINJA=1")) == set()
    assert found(DRAFT, before="LLAMA_ARG_DRAFT_MAX=8")["removed"].field == "--draft"


def test_a_removed_option_is_told_with_its_other_spellings() -> None:
    """Whoever wrote --draft-max looks for --draft in vain."""
    assert "--draft (or --draft-n, --draft-max)" in found(f"{DRAFT} --draft-max 8")["removed"].message
    assert found(DRAFT, before="LLAMA_ARG_SPEC_TYPE=eagle3")["bad_value"].field == "--spec-type"
    assert found(f"{DRAFT} --spec-draft-n-max 3", before="LLAMA_ARG_SPEC_DRAFT_N_MAX=4") == {}


def test_another_build_than_those_read_brings_a_caution() -> None:
    """Builds come several a day."""
    assert llamacpp_version("b11434").caution is None
    assert llamacpp_version("b12000").caution is not None
