"""Flags, environment and requests beside speculation: what vLLM refuses, ignores or pays for together. The rules stand in a table."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from paceline.data.tables import table
from paceline.servers.command_line import speculation_options
from paceline.servers.lint import ConfigFinding, Severity
from paceline.servers.lint_tables import Release, combination_findings, finding, unknown_flags
from paceline.servers.vllm.lint_case import Case, Drafting
from paceline.servers.vllm.versions import Compatibility, Status, compatibilities, has_flag, holds, parse_version, usable_methods

__all__ = ["baseline_findings", "beside_findings", "request_features"]

SEVERITIES = {
    Status.INCOMPATIBLE: Severity.ERROR,
    Status.PARTIAL: Severity.WARNING,
    Status.COSTS: Severity.WARNING,
    Status.IGNORED: Severity.WARNING,
    Status.UNKNOWN: Severity.WARNING,
    Status.COMPATIBLE: Severity.INFO,
}
FORCES_V2 = "VLLM_USE_V2_MODEL_RUNNER"
V2_DRAFTS_IN_PARALLEL = ("dflash", "dspark")
IMAGES = "images"  # what a target with a tower for them is served for
LORA_BUDGET_SINCE = "0.32.0"  # read there (engine/arg_utils.py:2672), earlier versions were not
OFF = (None, False, "false", "False", "0")

Row = Mapping[str, Any]


def request_features() -> tuple[str, ...]:
    """The names of what requests may be said to use."""
    return tuple(sorted(row["name"] for row in table("servers/vllm_lint")["requested"]))


def beside_findings(case: Case, drafting: Drafting) -> Iterator[ConfigFinding]:
    """What is to be known of a server that speculates beside its speculation."""
    yield from _flags(case)
    yield from _of_rows("combinations", case, drafting)
    features = {each.feature: each for each in compatibilities(drafting.method, case.version)}
    for row in table("servers/vllm_lint")["watched"]:
        if _given(row, case) and row["feature"] in features and _judged(row, case, drafting):
            yield _of_feature(row["code"], row["flag"], features[row["feature"]], row["remedy"], drafting)
    yield from _requests(case, drafting, features)
    yield from _runner(case, drafting)
    yield from _v0(case, drafting)
    yield from _few_tokens(case, drafting)


def baseline_findings(case: Case) -> Iterator[ConfigFinding]:
    """What is to be known of a server that does not speculate."""
    yield from _flags(case)
    yield from _of_rows("baseline", case, None)


def _of_rows(arm: str, case: Case, drafting: Drafting | None) -> list[ConfigFinding]:
    """The table's combinations that this server has: its arm's, and those of both."""
    rows = [*table("servers/vllm_lint")[arm], *table("servers/vllm_lint")["either"]]
    release = Release(asked=case.version.asked, parts=case.version.answers, caution=None)
    stated = replace(case.config, speculative=None if drafting is None else drafting.keys.values)
    return combination_findings(stated, rows, release, method=None if drafting is None else drafting.method)


def _flags(case: Case) -> Iterator[ConfigFinding]:
    """Flags about speculation that no version has, or not this one."""
    judged = {row["name"] for row in table("servers/vllm")["flags"]}
    yield from unknown_flags(case.config, {*judged, *speculation_options()}, engine="vLLM")
    for row in table("servers/vllm")["flags"]:
        name = row["name"]
        if name in case.config.flags and not has_flag(name, case.version):
            yield finding(
                Severity.ERROR,
                "flag_refused",
                name,
                f"{name} is not known before {row['since']}: the server refuses to start",
                remedy="leave it out, or upgrade",
                row=None,
            )


def _given(row: Row, case: Case) -> bool:
    if "above" in row:
        return (case.number(row["flag"]) or 0) > int(row["above"])
    return case.config.flags.get(row["flag"]) not in OFF


def _judged(row: Row, case: Case, drafting: Drafting) -> bool:
    """Whether the table of features knows this method; of one that it does not, async scheduling is not told."""
    return row["feature"] != "async scheduling" or drafting.method in usable_methods(case.version)


def _of_feature(code: str, field: str | None, known: Compatibility, remedy: str, drafting: Drafting) -> ConfigFinding:
    return finding(
        SEVERITIES[known.status],
        code,
        field,
        f"{known.feature} beside method {drafting.method}: {known.note}",
        remedy=remedy if known.status is not Status.COMPATIBLE else "nothing has to be done",
        row={"since": known.since, "until": known.until},
    )


def _requests(case: Case, drafting: Drafting, features: Mapping[str, Compatibility]) -> Iterator[ConfigFinding]:
    """What requests use, where it is said; else what would be refused or ignored if they did."""
    for row in table("servers/vllm_lint")["requested"]:
        known = features[row["feature"]]
        shown = row["name"] == IMAGES and case.target is not None and case.target.config.get("vision_config") is not None
        if row["name"] in case.requests_use or shown:
            yield _of_feature(row["code"], None, known, row["remedy"], drafting)
        elif known.status in (Status.INCOMPATIBLE, Status.IGNORED):
            told = _of_feature(row["code"], None, known, row["remedy"], drafting)
            yield finding(
                Severity.INFO,
                told.code,
                None,
                f"if requests use it: {told.message}",
                remedy=told.remedy,
                row={"since": told.since, "until": told.until},
            )


def _runner(case: Case, drafting: Drafting) -> Iterator[ConfigFinding]:
    """Model Runner V2, forced or by default, and what it does not draft with."""
    row = next((each for each in table("servers/vllm_lint")["runner_v2"] if holds(each, case.version)), None)
    if row is None:
        return
    forced = case.config.environment.get(FORCES_V2)
    parallel = drafting.keys.values.get("parallel_drafting") and drafting.method not in V2_DRAFTS_IN_PARALLEL
    lacks = (
        "parallel drafting" if parallel else "drafts in another vocabulary" if drafting.keys.values.get("use_heterogeneous_vocab") else ""
    )
    what = f"method {drafting.method}" if drafting.method in row["methods"] else lacks
    if what and forced == "1":
        yield _told(
            Severity.ERROR, "model_runner_v2", f"Model Runner V2 does not draft with {what} in this version: the server refuses", row
        )
    elif what and forced is None and row["by_default"]:
        message = f"Model Runner V2 does not draft with {what} in this version, so the whole server falls back to the V1 runner"
        yield _told(Severity.INFO, "model_runner_v1", message, row)
    elif drafting.method == "dspark" and forced == "0":
        yield _told(
            Severity.ERROR, "model_runner_v2", "dspark drafts on Model Runner V2 only, which is switched off: the server refuses", row
        )


def _told(severity: Severity, code: str, message: str, row: Row) -> ConfigFinding:
    remedy = f"leave {FORCES_V2} out, or take another method" if severity is Severity.ERROR else "run the baseline on the V1 runner too"
    return finding(severity, code, FORCES_V2, message, remedy=remedy, row=row)


def _v0(case: Case, drafting: Drafting) -> Iterator[ConfigFinding]:
    """Chunked prefill on the V0 engine, which alone served these methods."""
    if case.config.flags.get("--enable-chunked-prefill") in OFF:
        return
    field = "--enable-chunked-prefill"
    if drafting.method == "draft_model" and case.version.answers <= (0, 9, 2) and case.draft_tensor_parallel > 1:
        yield finding(
            Severity.ERROR,
            "chunked_prefill_with_draft_tp",
            field,
            f"the V0 engine refuses chunked prefill with a draft model over {case.draft_tensor_parallel} GPUs",
            remedy=f"leave {field} out, or run the draft on one GPU",
            row={"until": "0.9.2"},
        )
    if drafting.method == "eagle" and case.version.answers <= (0, 8, 2):
        yield finding(
            Severity.ERROR,
            "chunked_prefill_with_eagle",
            field,
            "the V0 engine, the only one that drafts with EAGLE in this version, refuses chunked prefill",
            remedy=f"leave {field} out, or upgrade",
            row={"until": "0.8.2"},
        )


def _few_tokens(case: Case, drafting: Drafting) -> Iterator[ConfigFinding]:
    """A budget of tokens that does not hold the sequences, or with LoRA their drafts."""
    tokens, sequences, k = case.number("--max-num-batched-tokens"), case.number("--max-num-seqs"), drafting.draft_tokens
    if tokens is None or sequences is None:
        return
    if tokens < sequences:
        yield finding(
            Severity.ERROR,
            "budget_below_sequences",
            "--max-num-batched-tokens",
            f"{tokens} tokens per step are fewer than {sequences} sequences: the server refuses to start",
            remedy=f"raise --max-num-batched-tokens to {sequences} or more",
            row=None,
        )
    needed = 0 if k is None or case.config.flags.get("--enable-lora") in OFF else sequences * (k + 1)
    if tokens < needed and k is not None and case.version.answers >= parse_version(LORA_BUDGET_SINCE):
        yield finding(
            Severity.ERROR,
            "budget_below_drafts",
            "--max-num-batched-tokens",
            f"with LoRA {sequences} sequences of {k + 1} tokens need {needed} per step, not {tokens}: the server refuses",
            remedy=f"raise --max-num-batched-tokens to {needed} or more, or write a smaller K",
            row={"since": LORA_BUDGET_SINCE},
        )
