"""Flags, environment and requests beside speculation: what vLLM refuses, ignores or pays for together. The rules stand in a table."""

from collections.abc import Iterator, Mapping
from typing import Any

from paceline.data.tables import table
from paceline.servers.lint import ConfigFinding, Severity, finding
from paceline.servers.vllm.lint_case import Case, Drafting
from paceline.servers.vllm.versions import Compatibility, Status, compatibilities, has_flag, holds, parse_version, usable_methods

__all__ = ["baseline_findings", "combination_findings", "request_features"]

SEVERITIES = {
    Status.INCOMPATIBLE: Severity.ERROR,
    Status.PARTIAL: Severity.WARNING,
    Status.COSTS: Severity.WARNING,
    Status.IGNORED: Severity.WARNING,
    Status.UNKNOWN: Severity.WARNING,
    Status.COMPATIBLE: Severity.INFO,
}
WORDS = {
    Status.INCOMPATIBLE: "does not go together with",
    Status.PARTIAL: "goes together only in part with",
    Status.COSTS: "costs something together with",
    Status.IGNORED: "is not applied together with",
    Status.UNKNOWN: "is not known to go together with",
    Status.COMPATIBLE: "goes together with",
}
FORCES_V2 = "VLLM_USE_V2_MODEL_RUNNER"
V2_DRAFTS_IN_PARALLEL = ("dflash", "dspark")
LORA_BUDGET_SINCE = "0.32.0"  # read there (engine/arg_utils.py:2672), earlier versions were not
OFF = (None, False, "false", "False", "0")

Row = Mapping[str, Any]


def request_features() -> tuple[str, ...]:
    """The names of what requests may be said to use."""
    return tuple(sorted(row["name"] for row in table("servers/vllm_lint")["requested"]))


def combination_findings(case: Case, drafting: Drafting) -> Iterator[ConfigFinding]:
    """What is to be known of a server that speculates beside its speculation."""
    yield from _flags(case)
    for row in table("servers/vllm_lint")["combinations"]:
        if holds(row, case.version) and row.get("arm") != "baseline" and _applies(row, case, drafting):
            yield _of_row(row)
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
    for row in table("servers/vllm_lint")["combinations"]:
        if holds(row, case.version) and row.get("arm") is not None and _applies(row, case, None):
            yield _of_row(row)


def _flags(case: Case) -> Iterator[ConfigFinding]:
    """Flags about speculation that this version does not have."""
    for row in table("servers/vllm")["flags"]:
        name = row["name"]
        if name in case.config.flags and not has_flag(name, case.version):
            yield finding(
                Severity.ERROR,
                "flag_refused",
                name,
                f"{name} is not known before {row['since']}: the server refuses to start",
                "leave it out, or upgrade",
            )


def _applies(row: Row, case: Case, drafting: Drafting | None) -> bool:
    values = {} if drafting is None else drafting.keys.values
    method = None if drafting is None else drafting.method
    if method is not None and (method not in row.get("methods", [method]) or method in row.get("except_methods", ())):
        return False
    named = [
        (row.get("flag"), case.config.flags, row.get("is")),
        (row.get("other_flag"), case.config.flags, None),
        (row.get("environment"), case.config.environment, row.get("is")),
        (row.get("field"), values, row.get("is") if "flag" not in row else None),
        (row.get("other_field"), values, row.get("other_is")),
    ]
    if any(name is not None and not _holds_for(where.get(name), choices) for name, where, choices in named):
        return False
    return _above(row, case) and row.get("stated") in {None, *values}


def _holds_for(value: object, choices: list[str] | None) -> bool:
    return value in choices if choices is not None else value not in OFF


def _above(row: Row, case: Case) -> bool:
    return "above" not in row or (case.number(row["flag"]) or 0) > row["above"]


def _given(row: Row, case: Case) -> bool:
    return case.config.flags.get(row["flag"]) not in OFF and _above(row, case)


def _judged(row: Row, case: Case, drafting: Drafting) -> bool:
    """Whether the table of features knows this method; of one that it does not, async scheduling is not told."""
    return row["feature"] != "async scheduling" or drafting.method in usable_methods(case.version)


def _of_row(row: Row) -> ConfigFinding:
    return finding(
        Severity(row["severity"]),
        row["code"],
        row.get("stated", row.get("field", row.get("flag", row.get("environment")))),
        row["message"],
        row["remedy"],
        since=row.get("since"),
        until=row.get("until"),
    )


def _of_feature(code: str, field: str | None, known: Compatibility, remedy: str, drafting: Drafting) -> ConfigFinding:
    return finding(
        SEVERITIES[known.status],
        code,
        field,
        f"{known.feature} {WORDS[known.status]} method {drafting.method}: {known.note}",
        remedy if known.status is not Status.COMPATIBLE else "nothing has to be done",
        since=known.since,
        until=known.until,
    )


def _requests(case: Case, drafting: Drafting, features: Mapping[str, Compatibility]) -> Iterator[ConfigFinding]:
    """What requests use, where it is said; else what would be refused or ignored if they did."""
    for row in table("servers/vllm_lint")["requested"]:
        known = features.get(row["feature"])
        if known is None:
            continue
        if row["name"] in case.requests_use:
            yield _of_feature(row["code"], None, known, row["remedy"], drafting)
        elif known.status in (Status.INCOMPATIBLE, Status.IGNORED):
            told = _of_feature(row["code"], None, known, row["remedy"], drafting)
            yield finding(
                Severity.INFO, told.code, None, f"if requests use it: {told.message}", told.remedy, since=told.since, until=told.until
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
    return finding(severity, code, FORCES_V2, message, remedy, since=row["since"], until=row.get("until"))


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
            f"leave {field} out, or run the draft on one GPU",
            until="0.9.2",
        )
    if drafting.method == "eagle" and case.version.answers <= (0, 8, 2):
        yield finding(
            Severity.ERROR,
            "chunked_prefill_with_eagle",
            field,
            "the V0 engine, the only one that drafts with EAGLE in this version, refuses chunked prefill",
            f"leave {field} out, or upgrade",
            until="0.8.2",
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
            f"raise --max-num-batched-tokens to {sequences} or more",
        )
    needed = 0 if k is None or case.config.flags.get("--enable-lora") in OFF else sequences * (k + 1)
    if tokens < needed and k is not None and case.version.answers >= parse_version(LORA_BUDGET_SINCE):
        yield finding(
            Severity.ERROR,
            "budget_below_drafts",
            "--max-num-batched-tokens",
            f"with LoRA {sequences} sequences of {k + 1} tokens need {needed} per step, not {tokens}: the server refuses",
            f"raise --max-num-batched-tokens to {needed} or more, or write a smaller K",
            since=LORA_BUDGET_SINCE,
        )
