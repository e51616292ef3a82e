"""What `vllm bench serve` prints at its end, out of a console log: one block per run, with the options it was called with above.

Figures are rounded to two decimals there. Counts are whole; acceptance by position is a percentage and gives no counts.
"""

import re
from pathlib import Path
from typing import Any

from paceline.errors import BadInputError, NoEvidenceError, printable
from paceline.files.benchfile.acceptance import counted
from paceline.files.benchfile.assemble import MILLISECONDS, Told, found_of, parsed_runs, plain_name, stated_load, summary, tool_summaries
from paceline.files.benchfile.documents import text_lines
from paceline.files.benchfile.fields import Fields
from paceline.files.benchfile.vllm_json import itl_doubts, take_counters
from paceline.files.found import Found, sha256_of
from paceline.run import Arm

__all__ = ["is_vllm_text", "read_vllm_text"]

MADE_BY = "vllm bench serve (console)"
OPENING = re.compile(r"=+ Serving Benchmark Result =+\s*")
CLOSING = re.compile(r"={20,}\s*")
LINE = re.compile(r"\s*([A-Za-z0-9][^:]{0,60}):\s+(-?[\d.]+|nan|inf)\s*", re.IGNORECASE)
OPTION = re.compile(r"(?<![\w.])(\w+)=('(?:[^'\\]|\\.)*'|[^,()\s]+)")
RATE = re.compile(r"Traffic request rate: ([\d.]+|inf)")
METRICS = {"TTFT": "ttft_s", "TPOT": "tpot_s", "ITL": "chunk_gap_s", "E2EL": "e2e_s"}
STATISTICS = {"Mean": "mean", "Median": "p50", "P50": "p50", "P90": "p90", "P95": "p95", "P99": "p99"}
RANDOM = ("random", "random-mm", "random-rerank")
MOST_LINES_IN_BLOCK = 400
MOST_BLOCKS = 10_000


def is_vllm_text(head: str) -> bool:
    """Whether a text begins as such a log: with the tool's own lines, or with the block."""
    return "Serving Benchmark Result" in head or ("Starting main benchmark run" in head or "bench_type='serve'" in head)


def read_vllm_text(path: Path) -> tuple[Found, ...]:
    """Every block in the log.

    Raises:
        BadInputError: no block, one that is cut off, or a figure that is none.
        NoEvidenceError: no run finished a request.

    """
    inputs = {path.name: sha256_of(path)}
    blocks = _blocks(path)
    if not blocks:
        raise NoEvidenceError(
            f"{printable(path.name)} is a log of vllm bench serve that holds no result: the run did not end, or was cut off"
        )
    return parsed_runs(blocks, lambda each: found_of(_run(each), made_by=MADE_BY, inputs=inputs), name=path.name)


def _blocks(path: Path) -> list[Fields]:
    """The blocks' figures by their names, each with the options last seen above it."""
    found: list[Fields] = []
    options: dict[str, str] = {}
    block: dict[str, Any] | None = None
    for line in text_lines(path):
        if OPENING.fullmatch(line):
            block = {}
        elif block is not None and CLOSING.fullmatch(line):
            found.append(Fields(block | {"options": options}, ""))
            block, options = None, {}
        elif block is not None:
            _take(line, block)
        elif line.startswith("Namespace("):
            options = {name: value.strip("'") for name, value in OPTION.findall(line)}
        elif (rate := RATE.match(line)) and "request_rate" not in options:
            options["request_rate"] = rate[1]
        if len(found) > MOST_BLOCKS or (block is not None and len(block) > MOST_LINES_IN_BLOCK):
            raise BadInputError(f"{printable(path.name)} holds more result lines than any benchmark prints")
    if block is not None:
        raise BadInputError(f"{printable(path.name)} ends in the middle of a result: cut off")
    return found


def _take(line: str, block: dict[str, Any]) -> None:
    matched = LINE.fullmatch(line)
    if matched is None:
        return
    name, text = matched[1].strip(), matched[2]
    if name in block:
        raise BadInputError(f"the result states {printable(name)} twice: two logs were mixed")
    try:
        block[name] = float(text)
    except ValueError:
        raise BadInputError(f"{printable(name)}: {printable(text)} is no number") from None


def _run(fields: Fields) -> Told:
    completed = fields.count("Successful requests")
    if not completed:
        raise NoEvidenceError("vllm bench finished no request: nothing was measured")
    options = Fields(fields.values["options"], "")
    told = Told(window_s=fields.positive("Benchmark duration (s)"))
    told.arguments = {
        name: plain_name(value)
        for name in ("model", "backend", "dataset_name", "temperature")
        if (value := options.text(name)) not in (None, "None")
    }
    _load(fields, options, told, completed)
    for theirs, ours in METRICS.items():
        values = {
            stat: fields.positive(f"{word} {theirs} (ms)") for word, stat in STATISTICS.items() if fields.has(f"{word} {theirs} (ms)")
        }
        told.summaries |= tool_summaries(values, ours, unit=MILLISECONDS, n=None if theirs == "ITL" else completed)
    rate, peak = fields.positive("Output token throughput (tok/s)"), fields.positive("Peak output token throughput (tok/s)")
    if rate is not None:
        told.summaries["output_tokens_per_s"] = summary(rate, "pooled", completed)
    for theirs, ours in (("Total generated tokens", "generation_tokens"), ("Total input tokens", "prompt_tokens")):
        tokens = fields.count(theirs)
        if tokens is not None:
            told.summaries[ours] = summary(tokens, "total", None)
    if rate is not None and peak is not None and peak < rate:
        told.note(
            "peak_counts_messages",
            f"the stated peak ({peak:g}) lies below the mean ({rate:g} tokens/s): it counts messages, and is not taken",
        )
    told.cautions += itl_doubts(None, told, is_chat=options.text("backend") == "openai-chat", has_lists=False)
    failed = fields.count("Failed requests")
    if failed:
        told.note("requests_failed", f"{failed} requests failed; latencies are of the others")
    gap = told.summaries.get("chunk_gap_s")
    told.step_seconds = gap.value if gap else None
    _speculation(fields, options, told, completed)
    return told


def _load(fields: Fields, options: Fields, told: Told, completed: int) -> None:
    text, capped = options.text("request_rate"), fields.count("Maximum request concurrency")
    stated = fields.positive("Request rate configured (RPS)")
    try:
        rate = stated if stated is not None else None if text is None else float(text)
    except ValueError:
        raise BadInputError(f"request_rate = {printable(text)} is no rate") from None
    sent = completed + (fields.count("Failed requests") or 0)
    stated_load(rate_per_s=rate, concurrency=capped, requests=sent, told=told)
    burstiness = options.text("burstiness")
    if told.load.rate_per_s is not None and burstiness not in (None, "1.0"):
        told.note("burstiness", f"requests came in gamma-distributed gaps (burstiness {printable(burstiness)}): compare equal ones only")


def _speculation(fields: Fields, options: Fields, told: Told, completed: int) -> None:
    drafts, drafted, accepted = (fields.count(key) for key in ("Drafts", "Draft tokens", "Accepted tokens"))
    if drafts is None or drafted is None or accepted is None:
        return
    told.arm = Arm.SPECULATIVE
    total = fields.count("Total generated tokens")
    counts, noted = counted(
        drafts=drafts,
        drafted_tokens=drafted,
        accepted_tokens=accepted,
        positions=None,
        later_tokens=None if total is None else max(total - completed, 0),
        requests=completed,
        steps=None,
    )
    take_counters(told, counts, noted, percent=fields.number("Acceptance rate (%)"), acceptance_length=fields.number("Acceptance length"))
    position = 0
    while fields.has(f"Position {position}"):
        share = fields.positive(f"Position {position}")
        assert share is not None
        told.summaries[f"survival_{position + 1}"] = summary(share / 100, "pooled", drafts)
        position += 1
    _requests_doubts(options, told)


def _requests_doubts(options: Fields, told: Told) -> None:
    if options.text("dataset_name") in RANDOM:
        told.note(
            "random_dataset", "prompts were random tokens: acceptance on them is not that of real traffic; measure on your own prompts"
        )
    if options.text("ignore_eos") == "True":
        told.note("ignore_eos", "answers were made to run past their end: acceptance of what follows is not that of real answers")
    temperature = options.text("temperature")
    if temperature is None:
        told.note("temperature_unstated", "the log does not say at which temperature was sampled, and acceptance moves with it")
    elif temperature == "None":
        told.note(
            "temperature_unstated",
            "the client sent no temperature, so the server's default held; acceptance moves with it: pass --temperature",
        )
