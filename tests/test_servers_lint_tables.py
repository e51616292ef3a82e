"""What a dialect's table says: spans of versions, kinds of values, conditions."""

import re
from pathlib import Path
from typing import Any

import pytest

from paceline.data.tables import table
from paceline.errors import BadInputError
from paceline.servers.lint import Severity
from paceline.servers.lint_tables import (
    Release,
    combination_findings,
    flag_findings,
    holds,
    method_findings,
    number_at,
    open_findings,
    parse_release,
    value_at,
    value_fault,
)
from paceline.servers.served_config import ServedConfig

READ = ("0.5.0", "0.5.23")
ENGINES = ("sglang", "llamacpp", "tensorrt_llm")
ROOT = Path(__file__).parent.parent


def config(**over: Any) -> ServedConfig:
    """A server of which nothing is known but what the test says."""
    plain: dict[str, Any] = {"engine": None, "target": None, "speculative": None, "image": None, "others": (), "where": "here"}
    return ServedConfig(**(plain | {"flags": {}, "environment": {}} | over))


def release(text: str) -> Release:
    """The version."""
    return parse_release(text, read=READ, engine="SGLang")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("0.5.10", (0, 5, 10)),
        ("v0.5", (0, 5, 0)),
        ("0.5.10.post1", (0, 5, 10)),
        ("0.5.3rc2", (0, 5, 3)),
        ("1.2.0rc6.post3", (1, 2, 0)),
        ("0.5.4+cu128", (0, 5, 4)),
        ("b11434", (11434, 0, 0)),
        ("11434.0.0", (11434, 0, 0)),
    ],
)
def test_versions_compare_as_numbers(text: str, parts: tuple[int, int, int]) -> None:
    """As text 0.5.9 comes after 0.5.10."""
    assert release(text).parts == parts


@pytest.mark.parametrize("text", ["", "latest", "0.5.x", "0.5.1.2.3.4", "1;ls", "9" * 20])
def test_what_is_no_version_is_refused(text: str) -> None:
    """A version that is misread lints for another release."""
    with pytest.raises(BadInputError, match=r"is no version of SGLang; write it like 0\.5\.23"):
        release(text)


def test_a_version_that_was_not_read_brings_a_caution() -> None:
    """Whoever runs a newer server: what is known is known of another one."""
    assert release("0.5.23.post1").caution is None
    for text in ("0.5.24", "0.4.9"):
        caution = release(text).caution
        assert caution is not None
        assert caution.code == "unknown_version"
        assert f"SGLang '{text}' was not read (known: 0.5.0 to 0.5.23)" in caution.message


def test_a_row_holds_from_since_to_until_both_included() -> None:
    """The first and the last release of a span are those that people run."""
    row = {"since": "0.5.2", "until": "0.5.9"}
    assert [holds(row, release(each)) for each in ("0.5.1", "0.5.2", "0.5.9.post1", "0.5.10")] == [False, True, True, False]
    assert [holds({"until": "1.3"}, release(each)) for each in ("1.3.7", "1.4.0")] == [True, False]
    assert holds({}, release("0.1"))


def test_values_are_found_where_a_place_names_them() -> None:
    """A rule about a variable or a key of a block is as good as one about a flag."""
    server = config(flags={"--a": ("1", "2"), "--b": True}, environment={"C": "x"}, speculative={"d": {"e": 5}, "f": None})
    assert [value_at(server, each, "m") for each in ("--a", "--b", "$C", "d.e", "f.g", "d.x", "method", "--z", "$Z")] == [
        "2", True, "x", 5, None, None, "m", None, None,
    ]  # fmt: skip
    assert value_at(config(), "a", None) is None
    assert [number_at(server, each) for each in ("--a", "--b", "$C", "d.e")] == [2.0, None, None, 5.0]
    assert number_at(config(flags={"--a": "1e999"}), "--a") is None
    assert number_at(config(speculative={"a": 10**400}), "a") is None


@pytest.mark.parametrize(
    ("value", "takes", "row", "fault"),
    [
        (True, "none", {}, None),
        ("1", "none", {}, "takes no value"),
        (True, "switch", {}, None),
        ("on", "switch", {}, None),
        (True, "text", {}, "needs a value"),
        ("x", "text", {}, None),
        (5, "text", {}, "is no text"),
        (("a", "b"), "several", {}, None),
        ("a", "text", {"choices": ["a", "b"]}, None),
        ("c", "text", {"choices": ["a", "b"]}, "holds 'c', which is none of a, b"),
        ("a,b", "text", {"choices": ["a", "b"]}, "holds 'a,b', which is none of a, b"),
        ("a,b", "text", {"choices": ["a", "b"], "list": True}, None),
        ("a,", "text", {"choices": ["a", "b"], "list": True}, "holds '', which is none of a, b"),
        ("4", "count", {"least": 1, "most": 4}, None),
        ("4x", "count", {}, "is no whole number"),
        ("1.5", "count", {}, "is no whole number"),
        ("0", "count", {"least": 1}, "is out of range (give a number of at least 1)"),
        ("5", "count", {"least": 1, "most": 4}, "is out of range (give a number of at least 1 and at most 4)"),
        ([1], "count", {}, "is no whole number"),
        (3, "count", {}, None),
        ("0.5", "number", {"most": 1}, None),
        ("x", "number", {}, "is no number"),
        ("4x", "leading_count", {}, None),
        ("1.5", "leading_count", {"most": 1}, None),
        ("x4", "leading_count", {}, "is no whole number"),
        ("99999999999", "leading_count", {}, "is no whole number"),
        (".5x", "leading_number", {"most": 1}, None),
        ("x", "leading_number", {}, "is no number"),
        (False, "flag", {}, None),
        ("true", "flag", {}, None),
        ("yes", "flag", {}, "is no flag"),
        (1, "mapping", {}, "is no mapping"),
        ({}, "mapping", {}, None),
        ([1], "any", {}, None),
    ],
)
def test_a_value_is_judged_by_its_kind_and_range(value: object, takes: str, row: dict[str, Any], fault: str | None) -> None:
    """Python's servers refuse `4x`, llama-server reads it as 4."""
    assert value_fault(value, {"value": takes} | row) == fault


FLAGS: list[dict[str, Any]] = [
    {"name": "--old", "value": "count", "until": "0.5.9", "instead": "write --new"},
    {"name": "--plain", "value": "count", "since": "0.5.3", "until": "0.5.9"},
    {"name": "--new", "value": "count", "since": "0.5.10", "least": 1},
    {"name": "--zero", "value": "none", "since": "0.5.0"},
    {"name": "--way", "value": "text", "choices": ["a"]},
    {"name": "--bare", "value": "none"},
    {"name": "--path", "value": "text"},
]


def found(flags: dict[str, Any], version: str) -> list[tuple[str, str | None, str | None, str]]:
    """What is found of these flags: code, span and remedy."""
    findings = flag_findings(config(flags=flags), FLAGS, release(version), engine="SGLang")
    assert all(each.severity is Severity.WARNING if each.code == "given_twice" else each.severity is Severity.ERROR for each in findings)
    return [(each.code, each.since, each.until, each.remedy) for each in findings]


def test_flags_that_a_release_lacks_are_told_with_since_and_until() -> None:
    """Whoever upgrades: the server does not start, and what took the option's place is what they look for."""
    assert found({"--old": "1"}, "0.5.10") == [("removed", "0.5.10", None, "write --new")]
    assert found({"--plain": "1"}, "0.5.12") == [("removed", "0.5.10", None, "leave it out")]
    assert found({"--plain": "1"}, "0.5.2") == [("not_yet", None, "0.5.2", "run SGLang 0.5.3 or later, or leave it out")]
    assert found({"--zero": True}, "0.4.9") == [("not_yet", None, None, "run SGLang 0.5.0 or later, or leave it out")]
    assert found({"--old": "1", "--plain": "2", "--mine": "3"}, "0.5.9") == []


def test_values_that_a_flag_does_not_take_are_told_with_the_range() -> None:
    """A server that does not start for a comma."""
    assert found({"--new": "0"}, "0.5.10") == [("bad_value", "0.5.10", None, "give a number of at least 1")]
    assert found({"--way": "b"}, "0.5.10") == [("bad_value", None, None, "take one of a")]
    assert found({"--bare": "1", "--path": True}, "0.5.10") == [
        ("bad_value", None, None, "give it without a value"),
        ("bad_value", None, None, "give a value of its kind"),
    ]
    assert found({"--new": "$N"}, "0.5.10") == []
    assert found({"--new": ("0", "2")}, "0.5.10") == [("given_twice", "0.5.10", None, "keep one --new")]
    assert found({"--new": ()}, "0.5.10")[0][0] == "given_twice"


def test_methods_are_told_with_the_nearest_name_or_the_span() -> None:
    """EAGEL3 is a typo; a name of next year is an upgrade."""
    rows = [{"name": "EAGLE3"}, {"name": "UNO", "since": "0.5.20"}, {"name": "OLD", "until": "0.5.1"}]

    def told(name: str) -> tuple[str, str]:
        (each,) = method_findings(name, rows, release("0.5.10"), field="--method", engine="SGLang")
        return each.code, each.remedy

    assert method_findings("EAGLE3", rows, release("0.5.10"), field="--method", engine="SGLang") == []
    assert told("EAGEL3") == ("unknown_method", "did you mean EAGLE3?")
    assert told("quux") == ("unknown_method", "take one of EAGLE3")
    assert told("UNO") == ("not_yet", "run SGLang 0.5.20 or later, or leave it out")
    assert told("OLD") == ("removed", "leave it out")


@pytest.mark.parametrize(
    ("asked", "value", "meets"),
    [
        ("given", "x", True), ("given", None, False), ("given", "$X", True), ("absent", None, True), ("absent", "x", False),
        ("> 1", "2", True), ("> 1", "1", False), ("> 1", "x", False), ("> 1", None, False), ("> 1", "$X", False), ("< 1", ".9", True),
        (">= 64", "64", True), ("<= 64", "65", False), ("== 0", "0", True), ("== 0", "0.0", True), ("is a|b", "a", True),
        ("is a|b", "c", False), ("is a|b", None, False), ("is not a|b", "c", True), ("is not a|b", "b", False), ("is not a", None, False),
        ("is not a", "{{ x }}", False), ("is true", True, True),
    ],
)  # fmt: skip
def test_conditions_say_what_a_value_must_be(asked: str, value: str | None, meets: bool) -> None:
    """What is unknown meets no condition: a false alarm for a template is one too many."""
    row = {"code": "c", "severity": "warning", "when": {"--a": asked}, "message": "--a is {} with {method}", "remedy": "r"}
    flags = {} if value is None else {"--a": value}
    findings = combination_findings(config(flags=flags), [row], release("0.5.0"), method="M")
    assert bool(findings) == meets


def test_a_combination_is_told_with_its_values_where_it_holds() -> None:
    """The message quotes what was written."""
    row = {
        "code": "c",
        "severity": "error",
        "until": "0.5.3",
        "when": {"method": "is M", "--a": "> 1"},
        "message": "{method}: {}",
        "remedy": "r",
    }
    server = config(flags={"--a": "5"}, speculative={"b": 7})
    (each,) = combination_findings(server, [row], release("0.5.3"), method="M")
    assert (each.severity, each.field, each.message, each.until) == (Severity.ERROR, "--a", "M: '5'", "0.5.3")
    assert combination_findings(server, [row], release("0.5.4"), method="M") == []
    alone = {"code": "c", "severity": "info", "when": {"method": "given"}, "message": "m", "remedy": "r"}
    (each,) = combination_findings(server, [alone], release("0.5.4"), method="M")
    assert each.field is None
    (each,) = combination_findings(server, [alone | {"field": "b", "message": "{}"}], release("0.5.4"), method="M")
    assert each.message == "7"


def test_a_finding_steers_no_terminal() -> None:
    """Whoever lints a stranger's file: an option's name may hold what clears the screen."""
    (each,) = open_findings(config(flags={"--a\x1b[2J": "$A"}))
    assert each.field == r"--a\x1b[2J"
    assert each.message.isprintable()


def test_open_values_are_listed() -> None:
    """Whoever lints a chart sees what was not checked."""
    server = config(flags={"--a": "$A", "--b": "b"}, environment={"C": "{{ c }}"}, speculative={"d": "${D}", "e": 1})
    assert [each.field for each in open_findings(server)] == ["--a", "$C", "d"]
    assert [each.field for each in open_findings(config())] == []


@pytest.mark.parametrize("engine", ENGINES)
def test_every_row_of_a_table_is_whole(engine: str) -> None:
    """A row with a typo in a key holds in no version, and nobody notices."""
    rows = table(f"servers/{engine}")
    kinds = {"none", "switch", "text", "several", "count", "number", "leading_count", "leading_number", "flag", "mapping", "any"}
    for row in rows["combinations"]:
        assert set(row) <= {"code", "severity", "since", "until", "field", "when", "message", "remedy", "source"}, row
        assert Severity(row["severity"])
        assert row["message"]
        assert row["remedy"]
        assert row["source"]
        for place, asked in row["when"].items():
            assert place == "method" or place.startswith(("--", "$")) or engine == "tensorrt_llm"
            assert asked.split(" ")[0] in ("given", "absent", "is", "<", ">", "<=", ">=", "=="), row
    for row in [*rows.get("flags", []), *rows.get("fields", [])]:
        keys = {"name", "since", "until", "value", "least", "most", "choices", "list", "instead", "types", "source"}
        assert set(row) <= keys, row
        assert row["value"] in kinds
        assert row["source"]
    for row in rows.get("methods", []):
        assert row["needs_draft"] in ("always", "never", "unless")
    for row in [*rows["combinations"], *rows.get("flags", []), *rows.get("methods", [])]:
        assert all(part.isdecimal() for key in ("since", "until") for part in row.get(key, "0").split("."))


@pytest.mark.parametrize("engine", ENGINES)
def test_every_code_is_in_the_reference(engine: str) -> None:
    """Whoever filters by a code, or looks one up."""
    text = (ROOT / "docs" / "reference" / "lint-engines.md").read_text(encoding="utf-8")
    listed = {code: set(severities.split(", ")) for code, severities in re.findall(r"^\| `(\w+)` \| ([a-z, ]+) \|", text, re.MULTILINE)}
    rules = (ROOT / "src" / "paceline" / "servers" / engine / "lint.py").read_text(encoding="utf-8")
    told = {(code, severity.lower()) for severity, code in re.findall(r'Severity\.(\w+), "(\w+)"', rules)}
    told |= {(row["code"], row["severity"]) for row in table(f"servers/{engine}")["combinations"]}
    assert told
    assert not [(code, severity) for code, severity in sorted(told) if severity not in listed.get(code, set())]
