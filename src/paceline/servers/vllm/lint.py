"""Whether a vLLM server's speculation is configured right for its version: what it refuses, ignores, makes lossy or slow, and the remedy.

Method by method, key by key, flag by flag; each finding says in which versions it holds. The rules' facts are packaged tables
(`data/servers/vllm*.toml`), each with its source; where a version could be run, the findings were held against it (`tests/real`).
"""

from collections.abc import Iterator
from dataclasses import replace

from paceline.checkpoint import Checkpoint
from paceline.errors import printable
from paceline.servers.lint import ConfigFinding, Severity, worst_first
from paceline.servers.lint_tables import finding, plain_server
from paceline.servers.served_config import ServedConfig, left_open
from paceline.servers.vllm.lint_case import Case, Drafting, stated_speculation
from paceline.servers.vllm.lint_combinations import baseline_findings, beside_findings
from paceline.servers.vllm.lint_draft import draft_findings
from paceline.servers.vllm.lint_keys import read_keys
from paceline.servers.vllm.lint_lengths import length_findings
from paceline.servers.vllm.lint_method import chosen_method, method_findings
from paceline.servers.vllm.versions import Version

__all__ = ["drafting_of", "lint"]

OWN_LAYERS = "_mtp"
OF_METHOD = ("ignored_key", "implied_method")
FINE = "fine for a baseline; `paceline config` writes the command of the other arm"
KEYS_SINCE = (0, 8, 2)


def lint(
    config: ServedConfig,
    version: Version,
    *,
    target: Checkpoint | None,
    draft: Checkpoint | None,
    requests_use: frozenset[str],
) -> tuple[ConfigFinding, ...]:
    """What is wrong with the configuration or worth knowing, worst first; a server that does not speculate is told so.

    Args:
        config: the server.
        version: of vLLM.
        target: the served model's folder, None where it is not at hand.
        draft: the draft's folder, None where it is not at hand or there is none.
        requests_use: names of `request_features` that requests are known to use.

    """
    drafting, found = _drafting(config, version, target=target, draft=draft)
    case = Case(version=version, config=config, target=target, drafting=drafting, requests_use=requests_use)
    if drafting is None and (found or "--config" in config.flags):
        return worst_first(found or _elsewhere(config))
    if drafting is None:
        told = plain_server(config, "--speculative-config", remedy=FINE, row=None)
        return worst_first((*baseline_findings(case), *told))
    if drafting.method_left_open:  # what depends on the method would be guessed
        return worst_first(tuple(each for each in found if each.code not in OF_METHOD))
    return worst_first((*found, *_findings(case, drafting)))


def drafting_of(config: ServedConfig, version: Version, *, target: Checkpoint | None, draft: Checkpoint | None) -> Drafting | None:
    """How the server drafts in this version, None where it does not."""
    return _drafting(config, version, target=target, draft=draft)[0]


def _drafting(
    config: ServedConfig, version: Version, *, target: Checkpoint | None, draft: Checkpoint | None
) -> tuple[Drafting | None, tuple[ConfigFinding, ...]]:
    speculative, misplaced = stated_speculation(config, version)
    if speculative is None:
        return None, misplaced
    method = speculative.get("method")
    own = speculative.get("model") is None and isinstance(method, str) and (method == "mtp" or method.endswith(OWN_LAYERS))
    drafts = target if own and draft is None else draft
    name = config.target or (target.name if target is not None else None)
    closed = {key: value for key, value in speculative.items() if not left_open(value)}
    chosen = chosen_method(closed, target=name, draft=drafts, version=version)
    # the flags of before state the same keys
    keys, found = read_keys(closed, method=chosen.name, version=replace(version, answers=max(version.answers, KEYS_SINCE)))
    opened = frozenset(speculative) - frozenset(closed)
    return Drafting(chosen=chosen, keys=replace(keys, named=keys.named | opened), draft=drafts), (*misplaced, *found, *_opened(opened))


def _findings(case: Case, drafting: Drafting) -> Iterator[ConfigFinding]:
    yield from method_findings(drafting.chosen, model=drafting.model, draft=drafting.draft, version=case.version)
    yield from length_findings(case, drafting)
    yield from draft_findings(case, drafting)
    yield from beside_findings(case, drafting)


def _elsewhere(config: ServedConfig) -> tuple[ConfigFinding, ...]:
    """That a file holds the options."""
    message = f"whether it speculates stands in {printable(str(config.flags['--config']))}, which was not read"
    return (finding(Severity.INFO, "config_elsewhere", "--config", message, remedy="lint that file too", row=None),)


def _opened(names: frozenset[str]) -> Iterator[ConfigFinding]:
    for name in sorted(names):
        yield finding(
            Severity.INFO,
            "left_open",
            name,
            f"{name} is filled in later, so it was not looked at",
            remedy="fill it in and lint again",
            row=None,
        )
