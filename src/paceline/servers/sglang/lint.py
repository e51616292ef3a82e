"""What SGLang does with a configuration: refuse it, lower or ignore something in it, or serve it and not speculate.

Notation: S = --speculative-num-steps (depth), k = --speculative-eagle-topk, W = --speculative-num-draft-tokens, which counts the root:

    k = 1      W = S + 1, else SGLang sets it so
    k > 1      W − 1 ≤ k + (S − 1) k²: the candidates that the tree has; and W − 1 ≥ S, or its depth is never reached
    all three or none; unset, they are chosen by the target's architecture

Source: SGLang's server arguments, 0.4.3 to 0.5.23 (data/servers/sglang.toml).
"""

import re
from collections.abc import Mapping
from typing import Any

from paceline.data.tables import table
from paceline.errors import printable
from paceline.servers.lint import ConfigFinding, Severity, worst_first
from paceline.servers.lint_tables import (
    Release,
    combination_findings,
    finding,
    flag_findings,
    holds,
    method_findings,
    number_at,
    open_findings,
    parse_release,
    plain_server,
    unknown_flags,
    value_at,
)
from paceline.servers.served_config import ServedConfig, left_open

__all__ = ["lint", "sglang_version"]

ALGORITHM = "--speculative-algorithm"
DRAFT = "--speculative-draft-model-path"
STEPS, TOPK, WIDTH = "--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens"
NUMBERS = (STEPS, TOPK, WIDTH)
TREES = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")
DEFAULTS = {STEPS: 5, TOPK: 4, WIDTH: 8}  # each for itself, before 0.4.6
ALL_OR_NONE = {"since": "0.4.6"}
PLUGINS_SINCE = "0.5.12"


def sglang_version(text: str) -> Release:
    """The version as it compares, with a caution where it was not read.

    Raises:
        BadInputError: `text` is no version.

    """
    return parse_release(text, read=table("servers/sglang")["read"], engine="SGLang")


def lint(config: ServedConfig, release: Release) -> tuple[ConfigFinding, ...]:
    """What this SGLang version makes of the configuration, worst first; empty where nothing is to be said."""
    rows = table("servers/sglang")
    named = value_at(config, ALGORITHM, None)
    method = named if isinstance(named, str) and not left_open(named) else None
    found = unknown_flags(config, (row["name"] for row in rows["flags"]), engine="SGLang")
    found += flag_findings(config, rows["flags"], release, engine="SGLang")
    found += _switched_on(config, named) if method is None else _method(config, method, rows, release)
    if method is not None or any(name in config.flags for name in NUMBERS):
        found += _numbers(config, method, release)
    if method is not None:
        found += _beyond_graphs(config)
    found += combination_findings(config, rows["combinations"], release, method=method)
    return worst_first((*found, *open_findings(config)))


def _switched_on(config: ServedConfig, named: object) -> list[ConfigFinding]:
    """That nothing switches speculation on."""
    if named is not None:
        return []
    given = [name for name in config.flags if name.startswith("--speculative")]
    remedy = f"add {ALGORITHM} EAGLE3, or another algorithm"
    if not given:
        return plain_server(config, ALGORITHM, remedy=remedy, row=None)
    message = f"{', '.join(given)} without {ALGORITHM}: the server starts and does not speculate"
    return [finding(Severity.ERROR, "not_switched_on", ALGORITHM, message, remedy=remedy, row=None)]


def _method(config: ServedConfig, method: str, rows: Mapping[str, Any], release: Release) -> list[ConfigFinding]:
    """Whether the release has the algorithm, and whether it has the draft that it needs."""
    found = method_findings(method, rows["methods"], release, field=ALGORITHM, engine="SGLang")
    if found and found[0].code == "unknown_method" and holds({"since": PLUGINS_SINCE}, release):
        message = f"{found[0].message}; from {PLUGINS_SINCE} on only a plugin of that name could bring it"
        return [finding(Severity.ERROR, "unknown_method", ALGORITHM, message, remedy=found[0].remedy, row=None)]
    row = next((each for each in rows["methods"] if each["name"] == method and holds(each, release)), None)
    if row is None or DRAFT in config.flags or row["needs_draft"] == "never":
        return found
    if row["needs_draft"] == "always":
        message = f"{method} needs {DRAFT}, and there is none"
        return [*found, finding(Severity.ERROR, "draft_missing", DRAFT, message, remedy=f"add {DRAFT} with the draft", row=row)]
    if any(re.search(each["pattern"], config.target or "", re.IGNORECASE) for each in rows["own_draft"]):
        return found
    target = "the target, which is not named here," if config.target is None else f"the target {printable(config.target)}"
    message = f"{method} has no {DRAFT}, so {target} must bring the draft's layers (MTP) in its own checkpoint"
    severity = Severity.INFO if config.target is None or left_open(config.target) else Severity.WARNING
    return [*found, finding(severity, "draft_from_target", DRAFT, message, remedy=f"add {DRAFT} unless it does", row=row)]


def _numbers(config: ServedConfig, method: str | None, release: Release) -> list[ConfigFinding]:
    """Depth, branching and width together."""
    given = [name for name in NUMBERS if name in config.flags]
    if method not in (None, *TREES) or not given:
        return []
    alone = not holds(ALL_OR_NONE, release)
    steps, topk, width = (float(first) if alone and name not in given else number_at(config, name) for name, first in DEFAULTS.items())
    missing = [name for name in NUMBERS if name not in given and not alone]
    if missing:
        chain = f": a chain of depth {steps:g} is {TOPK} 1 {WIDTH} {steps + 1:g}" if steps is not None and topk in (None, 1) else ""
        if steps is None and topk == 1 and width is not None and width > 1:
            chain = f": a chain of width {width:g} is {STEPS} {width - 1:g}"
        message = f"{', '.join(given)} without {', '.join(missing)}: SGLang takes all three or none"
        remedy = f"set {' and '.join(missing)} too{chain}, or leave all three out"
        return [finding(Severity.ERROR, "draft_numbers_partial", missing[0], message, remedy=remedy, row=ALL_OR_NONE)]
    if steps is None or topk is None or width is None or min(topk, width) < 1:
        return []
    return _chain(int(steps), int(width)) if topk == 1 else _tree(int(steps), int(topk), int(width))


def _chain(steps: int, width: int) -> list[ConfigFinding]:
    if width == steps + 1:
        return []
    what = "the last draft is never verified" if width <= steps else f"only {steps} drafts can ever be accepted"
    message = (
        f"{WIDTH} {width} does not fit a chain of {STEPS} {steps}: {what}. The root is counted, so it is {steps + 1}, and SGLang sets "
        f"it so with a warning in the log"
    )
    return [finding(Severity.WARNING, "draft_tokens_overridden", WIDTH, message, remedy=f"set {WIDTH} {steps + 1}", row=None)]


def _tree(steps: int, topk: int, width: int) -> list[ConfigFinding]:
    candidates = topk + (steps - 1) * topk**2
    if width - 1 > candidates:
        message = (
            f"{WIDTH} {width} verifies {width - 1} drafts, and a tree of depth {steps} and branching {topk} has {candidates} candidates"
        )
        remedy = f"set {WIDTH} to at most {candidates + 1}, or draft deeper"
        return [finding(Severity.ERROR, "tree_too_small", WIDTH, message, remedy=remedy, row=None)]
    if width - 1 < steps:
        message = f"{WIDTH} {width} verifies {width - 1} drafts, so the depth {STEPS} {steps} is never reached"
        remedy = f"set {WIDTH} to at least {steps + 1}, or {STEPS} {width - 1}"
        return [finding(Severity.WARNING, "depth_wasted", WIDTH, message, remedy=remedy, row=None)]
    return []


def _beyond_graphs(config: ServedConfig) -> list[ConfigFinding]:
    """More requests than CUDA graphs are captured for: sgl-project/sglang#33483, where a server that got there stayed slow."""
    requests, captured = number_at(config, "--max-running-requests"), number_at(config, "--cuda-graph-max-bs")
    if requests is None or captured is None or requests <= captured:
        return []
    message = (
        f"--max-running-requests {requests:g} is more than --cuda-graph-max-bs {captured:g}: beyond it steps run without graphs, and slowly"
    )
    remedy = f"set --cuda-graph-max-bs {requests:g}"
    return [finding(Severity.WARNING, "beyond_graphs", "--cuda-graph-max-bs", message, remedy=remedy, row=None)]
