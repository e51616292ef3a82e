"""What a block's answers amount to: a `Run` of the counted requests, with what is known of the server and of the client's own error.

Rules.
1. Edge requests are in no figure. In a closed loop the window is Σ E2E / concurrency (Little's law), in an open one first due to last end.
2. Acceptance is each request's own where the server tells it, else the difference of its counters over the block, edges included (said).
3. The client's own error is in summaries: `client_lag_s` and `client_lag_mean_s` (how late it read), `client_late_s` (how late it sent),
   `client_cpu_share`.
   Of several blocks the worst counts.
4. What the server's counters say of the block is in summaries too: `other_traffic_share` (of the requests that it answered, those that were
   not ours) and `prefix_cache_hit_share` (of the prompt tokens, those from its cache). Of several blocks the largest counts.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

import paceline
from paceline.errors import BadInputError, NoEvidenceError
from paceline.files.dump import malformed_lines
from paceline.live.answer import Answer, read_answer
from paceline.live.chunk_tokens import TokensFrom
from paceline.live.openai import Server
from paceline.live.sending import Sent, Watched
from paceline.run import Arm, Evidence, Load, Outcome, Provenance, RequestRecord, Run, Summary, joined
from paceline.servers.scrape import Scrape, read_scrape, window_of
from paceline.servers.window import Window
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Speculation
from paceline.verdict import Caution

__all__ = [
    "CLIENT_FIGURES",
    "Measured",
    "Scrapes",
    "Settings",
    "has_counters_only",
    "lacks_segments",
    "part_of",
    "whole_run",
    "with_blocks",
    "with_reason",
    "with_segments",
]

Scrapes = tuple[str | None, str | None]  # what /metrics said before and after

NS = 1e-9
CLIENT_FIGURES = ("client_lag_s", "client_lag_mean_s", "client_late_s", "client_cpu_share")
SERVER_FIGURES = ("other_traffic_share", "prefix_cache_hit_share")
COUNTERS = "the server's counters"
OF_ALL_TRAFFIC = "acceptance_of_all_traffic"
SEGMENTS_APART = "segments_measured_apart"
BURST = 1.1  # messages per step from which on they are called bursts; a stop in mid-draft makes it a little less than 1
BURSTS = Caution(
    "tokens_in_bursts",
    "the server sends the tokens of one step as several messages right after each other, so most gaps between chunks are close to 0 and "
    "their percentiles are not those of a server that sends a step at once; compare TPOT, and tokens per step by the counts",
)
NOT_MEASURED = Caution(
    "acceptance_not_measured",
    "neither the answers nor /metrics tell what was accepted; switch per-request speculation metrics or /metrics on",
)
NOTHING_DRAFTED = Caution(
    "nothing_drafted",
    "the speculative server drafted nothing: its speculation is off or found nothing to draft, which is not an acceptance of 0; look at "
    "its flags and its start-up log",
)


@dataclass(frozen=True, slots=True)
class Settings:
    """What is written into every run.

    Attributes:
        speculation: how the speculative server drafts, None where nobody said.
        arguments: temperature, seed and whatever else changes the result, as given.
        inputs: SHA-256 by file name.
        seed: of the sample and of every request's sampling.
        cautions: about the traffic.
        count_tokens: tokens of a text, for servers that do not say how many a message holds; None where no tokenizer was given.

    """

    speculation: Speculation | None
    arguments: Mapping[str, str]
    inputs: Mapping[str, str]
    seed: int
    cautions: tuple[Caution, ...]
    count_tokens: Callable[[str], int] | None


@dataclass(frozen=True, slots=True)
class Measured:
    """A block's answers as they came, and whose they are. `warm_up_rounds` is None where the server had not settled or is not known."""

    arm: Arm
    server: Server
    sent: tuple[Sent, ...]
    counted: frozenset[str]
    warm_up_rounds: int | None

    @property
    def origin_ns(self) -> int:
        """The block's own zero: when its first request was due."""
        return min(each.due_ns for each in self.sent)

    def answers(self, count_tokens: Callable[[str], int] | None) -> list[Answer]:
        """The counted answers, in the order in which they were due."""
        ordered = sorted((each for each in self.sent if each.ask.id in self.counted), key=lambda each: each.due_ns)
        return [
            read_answer(
                each.received,
                each.ask,
                arrived_at_s=(each.due_ns - self.origin_ns) * NS,
                clock_origin_ns=self.origin_ns,
                count_tokens=count_tokens,
            )
            for each in ordered
        ]


def part_of(
    made: Measured,
    answers: Sequence[Answer],
    load: Load,
    settings: Settings,
    *,
    watched: Watched | None,
    scrapes: Scrapes,
) -> Run:
    """The run of the counted answers. `watched` None: the client was stopped before it could say how late it was."""
    records = tuple(each.record for each in answers)
    finished = [each for each in records if each.outcome is Outcome.FINISHED]
    window, doubts = _window(scrapes, made.server.model)
    acceptance, source, more = _acceptance(made, answers, window)
    tokens_from = sorted({each.tokens_from.value for each in answers})
    arguments = {
        **settings.arguments,
        "model": made.server.model,
        "tokens_from": ", ".join(tokens_from),
        "acceptance_from": source,
        "warm_up_rounds": "not settled" if made.warm_up_rounds is None else str(made.warm_up_rounds),
    }
    return Run(
        arm=made.arm,
        speculation=settings.speculation if made.arm is Arm.SPECULATIVE else None,
        load=load,
        requests=records,
        acceptance_by_segment=acceptance,
        step_seconds=_step_seconds(finished),
        summaries=_client(made, watched) | _server(made, window),
        window_s=_window_s(made, load, [each.timing.e2e_s for each in finished if each.timing.chunk_at_s.size]),
        provenance=Provenance(
            made_by="paceline bench",
            version=paceline.__version__,
            evidence=Evidence.MEASURED,
            arguments=arguments,
            inputs=settings.inputs,
            seed=settings.seed,
        ),
        cautions=(*settings.cautions, *_answer_cautions(answers), *_bursts(finished), *doubts, *more, *_warm_up(made)),
    )


def whole_run(parts: Sequence[Run]) -> Run:
    """Parts of a block, or blocks of an arm, as one run; of the client's figures the worst."""
    worst: dict[str, Summary] = {}
    for name in (*CLIENT_FIGURES, *SERVER_FIGURES):
        known = [each.summaries[name] for each in parts if name in each.summaries]
        if known:
            worst[name] = max(known, key=lambda each: each.value)
    whole = joined(parts)
    pace = _tokens_per_chunk(whole)
    return replace(whole, summaries=worst if pace is None else {**worst, "tokens_per_chunk": pace})


def with_reason(run: Run, why: str) -> Run:
    """The run, where it says that acceptance was not measured also saying why /metrics did not tell."""
    return replace(
        run,
        cautions=tuple(
            replace(each, message=f"{each.message}; {why}") if each.code == NOT_MEASURED.code else each for each in run.cautions
        ),
    )


def has_counters_only(run: Run) -> bool:
    """Whether acceptance is known for all traffic together, from the server's counters."""
    return run.provenance.arguments.get("acceptance_from") == COUNTERS


def lacks_segments(run: Run) -> bool:
    """Whether acceptance by segment is known for all traffic together, and was not measured apart."""
    return has_counters_only(run) and SEGMENTS_APART not in {each.code for each in run.cautions}


def with_blocks(run: Run, counts: Iterable[tuple[int, int]]) -> Run:
    """The run, saying how many of its requests came from which block, as `stats.blocks` reads it."""
    stated = ",".join(f"{number}:{count}" for number, count in counts)
    return replace(run, provenance=replace(run.provenance, arguments={**run.provenance.arguments, "blocks": stated}))


def with_segments(run: Run, measured: Mapping[str, Run]) -> Run:
    """The run with each segment's acceptance, measured with that segment alone on the server."""
    by_segment = {name: AcceptanceCounts.pooled((each.acceptance_by_segment or {}).values()) for name, each in measured.items()}
    apart = Caution(
        SEGMENTS_APART,
        "acceptance by segment comes from the server's counters with one segment at a time, after the latencies were measured",
    )
    return replace(run, acceptance_by_segment=by_segment, cautions=(*(each for each in run.cautions if each.code != OF_ALL_TRAFFIC), apart))


def _tokens_per_chunk(run: Run) -> Summary | None:
    """Mean tokens of the chunks after the first, where each chunk's tokens are known: tokens per step if every step makes one chunk."""
    told = run.provenance.arguments.get("tokens_from", "")
    if not told or not all(TokensFrom(each).is_exact for each in told.split(", ")):
        return None
    timings = [each.timing for each in run.finished]
    later = sum(int(each.chunk_tokens[1:].sum()) for each in timings)
    count = sum(max(each.chunk_tokens.size - 1, 0) for each in timings)
    return Summary(value=later / count, statistic="pooled", n=count, low=None, high=None) if count else None


def _steps(records: Sequence[RequestRecord]) -> int | None:
    """Decode steps of all these requests, None where one of them does not tell."""
    known = [each.acceptance.steps for each in records if each.acceptance is not None and each.acceptance.steps is not None]
    return sum(known) if known and len(known) == len(records) else None


def _step_seconds(finished: Sequence[RequestRecord]) -> float | None:
    """Mean seconds per decode step: time from first to last chunk over the steps, where those are told; else the mean gap."""
    gaps_s = np.concatenate([np.empty(0), *(each.timing.chunk_gaps_s for each in finished)])
    steps = _steps(finished) or gaps_s.size
    return float(gaps_s.sum()) / steps if gaps_s.size else None


def _bursts(finished: Sequence[RequestRecord]) -> Iterable[Caution]:
    """A doubt about gaps, where a server sends the tokens of one step in several messages, as llama-server does."""
    steps, gaps = _steps(finished), sum(max(each.timing.chunk_at_s.size - 1, 0) for each in finished)
    if steps and gaps > BURST * steps:
        yield BURSTS


def _window_s(made: Measured, load: Load, e2e_s: Sequence[float]) -> float:
    if load.concurrency is not None:
        return sum(e2e_s) / load.concurrency
    return (max(each.received.ended_at_ns for each in made.sent) - made.origin_ns) * NS


def _client(made: Measured, watched: Watched | None) -> dict[str, Summary]:
    """How late the client was."""
    late_s = np.array([max(0, each.received.sent_at_ns - each.due_ns) * NS for each in made.sent])
    found = {"client_late_s": Summary(value=float(np.quantile(late_s, 0.99)), statistic="p99", n=late_s.size, low=None, high=None)}
    if watched is None:
        return found
    n = len(watched.lags_s)
    for name, statistic, value in (("client_lag_s", "p99", watched.lag_p99_s), ("client_lag_mean_s", "mean", watched.lag_mean_s)):
        if value is not None:
            found[name] = Summary(value=value, statistic=statistic, n=n, low=None, high=None)
    if watched.cpu_share is not None:
        found["client_cpu_share"] = Summary(value=watched.cpu_share, statistic="mean", n=None, low=None, high=None)
    return found


def _server(made: Measured, window: Window | None) -> dict[str, Summary]:
    """What the server's counters say of the block."""
    if window is None:
        return {}
    found = {name: window.gauges[name] for name in SERVER_FIGURES if name in window.gauges}
    if window.first_tokens:
        others = max(0.0, 1 - len(made.sent) / window.first_tokens)
        found["other_traffic_share"] = Summary(value=others, statistic="pooled", n=window.first_tokens, low=None, high=None)
    return found


def _acceptance(
    made: Measured, answers: Sequence[Answer], window: Window | None
) -> tuple[dict[str, AcceptanceCounts] | None, str, list[Caution]]:
    """Counts by segment, where they come from, and what is doubtful about them."""
    finished = [each.record for each in answers if each.record.outcome is Outcome.FINISHED]
    counted = [each for each in finished if each.acceptance is not None]
    counters, doubts = _counters(window)
    if made.arm is Arm.BASELINE:
        if counters is not None and counters.drafts:
            doubts.append(Caution("baseline_drafts", "the baseline server drafted during its block: speculation is on in both arms"))
        return None, "none", [each for each in doubts if each is not NOTHING_DRAFTED]
    if finished and len(counted) == len(finished):
        by_segment = AcceptanceCounts.by_segment((each.segment, each.acceptance) for each in counted if each.acceptance is not None)
        if not any(each.drafts for each in by_segment.values()) and NOTHING_DRAFTED not in doubts:
            doubts.append(NOTHING_DRAFTED)
        return by_segment, "each request", doubts
    some = f"; {len(counted)} of {len(finished)} answers told their own counts" if counted else ""
    if counters is not None:
        doubts.append(
            Caution(
                OF_ALL_TRAFFIC,
                f"acceptance is the server's counters over the block: uncounted edge requests and any other traffic are in it{some}",
            )
        )
        return {"all": counters}, COUNTERS, doubts
    if NOTHING_DRAFTED not in doubts:
        doubts.append(replace(NOT_MEASURED, message=NOT_MEASURED.message + some))
    return None, "none", doubts


def _counters(window: Window | None) -> tuple[AcceptanceCounts | None, list[Caution]]:
    """What was accepted by the server's counters, None where it has none that count it."""
    if window is None or window.ratios_only:
        return None, []
    if window.drafts == 0:
        return None, [NOTHING_DRAFTED]
    counts = window.acceptance if window.drafts else None
    return counts, list(window.noted if counts is None else window.cautions)


def _window(scrapes: Scrapes, model: str) -> tuple[Window | None, list[Caution]]:
    """What the server's counters did over the block, None where it has none that we read."""
    first, second = scrapes
    if first is None or second is None:
        return None, []
    try:
        before, after = (_scrape(each, model) for each in (first, second))
        window = window_of([before, after])
        _ = window.acceptance  # contradictory counters are told here
    except (BadInputError, NoEvidenceError) as error:
        return None, [Caution("metrics_unread", f"/metrics could not be read: {error}")]
    return window, malformed_lines("/metrics before", before.malformed) + malformed_lines("/metrics after", after.malformed)


def _scrape(text: str, model: str) -> Scrape:
    """A scrape of a server with one model, else of this one."""
    try:
        return read_scrape(text, model=None)
    except BadInputError:
        return read_scrape(text, model=model)


def _answer_cautions(answers: Sequence[Answer]) -> Iterable[Caution]:
    """Each doubt once, with how many answers have it."""
    told = Counter(caution.code for each in answers for caution in each.cautions)
    first = {caution.code: caution for each in reversed(answers) for caution in each.cautions}
    for code, count in sorted(told.items()):
        yield Caution(code, f"{first[code].message} ({count} of {len(answers)} answers)")
    failed = [each for each in answers if each.record.outcome is not Outcome.FINISHED]
    if failed:
        yield Caution(
            "requests_failed",
            f"{len(failed)} of {len(answers)} requests did not finish; they are in no latency; the first: {failed[0].error or 'no reason'}",
        )


def _warm_up(made: Measured) -> Iterable[Caution]:
    if made.warm_up_rounds is None:
        yield Caution(
            "not_warm",
            "the server still got faster after its warm-up, so the first block may hold its compiler; measure again",
        )
