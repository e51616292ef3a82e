"""What `lint` does once it is asked."""

import argparse
import shlex
from pathlib import Path

from paceline.cli.output import answer
from paceline.errors import BadInputError
from paceline.jobs.linting import Folders, lint_servers
from paceline.report.lint import findings_dict, findings_text
from paceline.servers.lint import Severity

__all__ = ["run_lint"]


def run_lint(options: argparse.Namespace) -> int:
    """`lint`: exit code 1 where a server would refuse, or serve and not speculate."""
    servers = lint_servers(
        _source(options),
        engine=options.engine,
        version=options.engine_version,
        folders=Folders(target=options.target, draft=options.draft),
        requests_use=frozenset(options.requests_use or ()),
    )
    cautions = tuple(dict.fromkeys(caution for each in servers for caution in each.cautions))
    body = {
        "engine": options.engine,
        "engine_version": options.engine_version,
        "findings": [row for each in servers for row in findings_dict(each.findings, where=each.config.where)],
        "warnings": [{"code": each.code, "message": each.message} for each in cautions],
    }
    text = findings_text([(each.config.where, each.findings) for each in servers], cautions=cautions)
    answer(options, body=body, text=text, inputs={})
    return int(any(found.severity is Severity.ERROR for each in servers for found in each.findings))


def _source(options: argparse.Namespace) -> Path | str:
    """The one configuration that was given: a file, a command line behind --, or the value of --speculative-config."""
    words = list(options.configuration)
    if options.speculative_config is not None and not words:
        return shlex.join(["--speculative-config", options.speculative_config])
    if options.speculative_config is not None and len(words) > 1:
        return shlex.join([*words, "--speculative-config", options.speculative_config])
    if options.speculative_config is None and words:
        return Path(words[0]) if len(words) == 1 else shlex.join(words)
    raise BadInputError("give one configuration: a FILE, --speculative-config JSON, or a whole command line behind --")
