"""The JSON lines of SGLang's bench_serving, one object per run, and the table of SpecForge made with it.

    ITL, backend sglang            a message's gap divided by its tokens, once for each: our token gap
    ITL, sglang-oai, -oai-chat     the same (the text tokenized again) where the server told an acceptance length, else between messages
    ITL, other backends            gap between two messages: our chunk gap
    itls, with --output-details    token gaps for the backend sglang, gaps between messages for all others
    accept_length                  mean of the first data-parallel rank since its start, warm-up and earlier runs included: no counts

Source: SGLang 0.5.23, benchmark/serving.py.
"""

from itertools import groupby
from pathlib import Path

from paceline.errors import BadInputError, NoEvidenceError
from paceline.files.benchfile.assemble import (
    MILLISECONDS,
    Told,
    answers_cautions,
    found_of,
    parsed_runs,
    plain_name,
    requests_of,
    stated_load,
    summary,
    tool_summaries,
)
from paceline.files.benchfile.documents import documents
from paceline.files.benchfile.fields import Fields, as_object, finite, numbers
from paceline.files.benchfile.requests import Seen, instants_after
from paceline.files.found import Found, sha256_of
from paceline.run import Arm, Outcome

__all__ = ["is_sglang", "read_sglang"]

MADE_BY = "sglang bench_serving"
METRICS = {"ttft": "ttft_s", "tpot": "tpot_s", "e2e_latency": "e2e_s"}
STATISTICS = {"mean": "mean", "median": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
LIMITS = ("max_running_requests", "speculative_accept_threshold_single", "speculative_accept_threshold_acc")
RANDOM = ("random", "random-ids", "generated-shared-prefix")


def is_sglang(head: str) -> bool:
    """Whether the file begins as one."""
    return '"dataset_name":' in head and any(f'"{key}":' in head for key in ("sharegpt_output_len", "random_input_len", "accept_length"))


def read_sglang(path: Path) -> tuple[Found, ...]:
    """Every run in the file.

    Raises:
        BadInputError: no whole JSON, or figures that are none.
        NoEvidenceError: no run finished a request.

    """
    inputs = {path.name: sha256_of(path)}
    objects = [Fields(as_object(each, f"run {i}"), "") for i, each in enumerate(documents(path), 1)]
    return parsed_runs(objects, lambda each: found_of(_run(each), made_by=MADE_BY, inputs=inputs), name=path.name)


def _run(fields: Fields) -> Told:
    completed = fields.count("completed")
    if not completed:
        raise NoEvidenceError("sglang's benchmark finished no request: nothing was measured")
    told = Told(window_s=fields.positive("duration"))
    _arguments(fields, told)
    rate = fields.values.get("request_rate")
    rate_per_s = None if rate is None else float("inf") if rate in ("inf", float("inf")) else finite(rate, "request_rate")
    stated_load(rate_per_s=rate_per_s, concurrency=fields.count("max_concurrency"), requests=completed, told=told)
    for theirs, ours in METRICS.items():
        told.summaries |= tool_summaries(_statistics(fields, theirs), ours, unit=MILLISECONDS, n=completed)
    is_native, length = told.arguments.get("backend") == "sglang", fields.positive("accept_length")
    _gap_summaries(fields, told, per_token=is_native or (told.arguments.get("backend", "").startswith("sglang") and bool(length)))
    _throughput(fields, told, completed)
    if fields.has("ttfts", "itls", "output_lens", "input_lens"):
        requests_of(_seen(fields, told, is_native=is_native), told)
        answers_cautions(fields.list("generated_texts") or [], told)
    step = told.summaries.get("chunk_gap_s")
    told.step_seconds = step.value if step else None
    _speculation(told, length)
    return told


def _arguments(fields: Fields, told: Told) -> None:
    for key in ("backend", "dataset_name", "tag"):
        text = fields.text(key)
        if text is not None:
            told.arguments[key] = text
    model = fields.object("server_info").text("model_path")
    if model is not None:
        told.arguments["model"] = plain_name(model)
    server = fields.object("server_info").values
    told.arguments |= {name: f"{server[name]:g}" for name in LIMITS if type(server.get(name)) in (int, float)}
    if fields.text("dataset_name") in RANDOM:
        told.note(
            "random_dataset", "prompts were random tokens: acceptance on them is not that of real traffic; measure on your own prompts"
        )


def _statistics(fields: Fields, metric: str) -> dict[str, float | None]:
    return {ours: fields.positive(f"{theirs}_{metric}_ms") for theirs, ours in STATISTICS.items()}


def _gap_summaries(fields: Fields, told: Told, *, per_token: bool) -> None:
    told.summaries |= tool_summaries(_statistics(fields, "itl"), "token_gap_s" if per_token else "chunk_gap_s", unit=MILLISECONDS, n=None)
    if per_token and fields.has("mean_itl_ms"):
        told.note("itl_is_per_token", "SGLang's ITL is a message's gap spread over its tokens: it is a token gap here, and hides stalls")


def _throughput(fields: Fields, told: Told, completed: int) -> None:
    rate, peak = fields.positive("output_throughput"), fields.positive("max_output_tokens_per_s")
    if rate is not None:
        told.summaries["output_tokens_per_s"] = summary(rate, "pooled", completed)
    tokens = fields.count("total_output_tokens")
    if tokens is not None:
        told.summaries["generation_tokens"] = summary(tokens, "total", None)
    if rate is not None and peak is not None and peak < rate:
        told.note(
            "peak_counts_messages",
            f"the stated peak ({peak:g}) lies below the mean ({rate:g} tokens/s): it counts messages, and is not taken",
        )


def _speculation(told: Told, length: float | None) -> None:
    """An acceptance length is told only by a server that drafts; it is nobody's count."""
    if not length:
        return
    told.arm = Arm.SPECULATIVE
    told.summaries["acceptance_length"] = summary(length, "mean", None)
    told.note(
        "accept_length_of_server",
        "accept_length is the server's mean since its start, first data-parallel rank only, warm-up and earlier runs included: it is not "
        "this run's, and holds no counts; `measure` the server's /metrics around the run",
    )


def _seen(fields: Fields, told: Told, *, is_native: bool) -> list[Seen]:
    ttfts, gaps = (
        numbers(fields.values["ttfts"], "ttfts"),
        [numbers(each, f"itls[{i}]") for i, each in enumerate(fields.list("itls") or [])],
    )
    lengths = [Fields({"length": each}, f"{key}: ") for key in ("input_lens", "output_lens") for each in fields.list(key) or []]
    errors = fields.list("errors") or [""] * len(ttfts)
    if not len(ttfts) == len(gaps) == len(errors) == len(lengths) / 2:
        raise BadInputError("the lists of requests (ttfts, itls, input_lens, output_lens, errors) are of different lengths")
    told.note(
        "send_times_unknown", "the file does not say when requests were sent: all count from 0, which leaves their latencies as they are"
    )
    counts = [each.count("length") or 0 for each in lengths]
    found = []
    for i, (ttft, own) in enumerate(zip(ttfts, gaps, strict=True)):
        prompt, output = counts[i], counts[len(ttfts) + i]
        done = not errors[i] and output > 0
        steps = [sum(group) for _, group in groupby(own)] if is_native else own
        found.append(
            Seen(
                id=str(i),
                segment="all",
                prompt_tokens=prompt,
                output_tokens=output,
                arrived_at_s=0.0,
                sent_at_s=0.0,
                chunk_at_s=instants_after(ttft, steps),
                chunk_tokens=_sizes(own, output) if is_native else None,
                sees_all_chunks=True,
                acceptance=None,
                outcome=Outcome.FINISHED if done else Outcome.FAILED,
            )
        )
    return found


def _sizes(gaps_s: list[float], output_tokens: int) -> tuple[int, ...] | None:
    """Tokens of each message of the native backend: as many equal gaps in a row, and what is left for the first."""
    first = output_tokens - len(gaps_s)
    return (first, *(len(list(group)) for _, group in groupby(gaps_s))) if first > 0 else None
