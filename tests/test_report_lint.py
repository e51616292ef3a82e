"""What lint prints."""

from paceline.report.lint import findings_dict, findings_text
from paceline.servers.lint import ConfigFinding, Severity
from paceline.verdict import Caution

TOLD = ConfigFinding(
    severity=Severity.ERROR,
    code="unknown_key",
    field="key",
    message="no \x1b[2Jsuch key",
    remedy="leave it out",
    since="0.9.1",
    until="0.15.1",
)
LATER = ConfigFinding(
    severity=Severity.INFO, code="left_open", field=None, message="not looked at", remedy="fill it in", since="0.32.0", until=None
)


def test_each_finding_says_what_is_wrong_what_to_do_and_where_it_holds() -> None:
    """Whoever reads it on a terminal: two lines per finding, nothing in them that steers it."""
    text = findings_text([("here", [TOLD, LATER])], cautions=[Caution("unknown_version", "0.99 was not read")])
    assert text.split("\n") == [
        "error    unknown_key: no \\x1b[2Jsuch key (from 0.9.1 up to 0.15.1)",
        "         leave it out",
        "info     left_open: not looked at (from 0.32.0)",
        "         fill it in",
        "",
        "note: 0.99 was not read",
    ]


def test_several_servers_are_told_apart_and_a_clean_one_is_said_to_be_clean() -> None:
    """Whoever lints a manifest: which container it is, and that the other one was looked at too."""
    text = findings_text([("web", [TOLD]), ("worker", [])], cautions=[])
    assert text.startswith("web\nerror")
    assert text.endswith("worker\nnothing to say: this version takes it as it stands")


def test_json_has_a_key_for_everything_a_script_needs() -> None:
    """Whoever gates a deployment on it: severity, code and span are fields, not words in a sentence."""
    assert findings_dict([TOLD], where="web") == [
        {
            "severity": "error",
            "code": "unknown_key",
            "field": "key",
            "message": "no \x1b[2Jsuch key",
            "remedy": "leave it out",
            "since": "0.9.1",
            "until": "0.15.1",
            "where": "web",
        }
    ]
