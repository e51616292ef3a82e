"""Puts together what a reader found into a run, and says what is doubtful in the same words for every tool.

Every result file is somebody else's measurement: evidence is MEASURED, made_by names the tool, inputs hold the file's hash.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from paceline import __version__
from paceline.errors import BadInputError, NoEvidenceError, printable
from paceline.files.benchfile.fields import Fields
from paceline.files.benchfile.requests import Seen, detail_cautions, detail_of, latency_summaries, record_of, summary_name
from paceline.files.found import Found
from paceline.run import Arm, Evidence, Load, Outcome, Provenance, RequestRecord, Run, Summary, lawful_summaries
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Method, Speculation
from paceline.verdict import Caution

__all__ = [
    "MILLISECONDS",
    "Told",
    "answers_cautions",
    "found_of",
    "listed",
    "method_named",
    "parsed_runs",
    "plain_name",
    "requests_of",
    "stated_load",
    "summary",
    "tool_summaries",
]

MILLISECONDS = 1e-3
SUMMARIES_DIFFER = 0.02
MOSTLY_ONE_WORD = 0.8
FEWEST_WORDS = 10
METHODS = {
    "ngram": Method.NGRAM,
    "[ngram]": Method.NGRAM,
    "ngram_gpu": Method.NGRAM,
    "suffix": Method.SUFFIX,
    "draft_model": Method.DRAFT_MODEL,
    "draft-model": Method.DRAFT_MODEL,
    "draft-simple": Method.DRAFT_MODEL,
    "standalone": Method.DRAFT_MODEL,
    "eagle": Method.EAGLE,
    "eagle1": Method.EAGLE,
    "eagle2": Method.EAGLE2,
    "eagle3": Method.EAGLE3,
    "mtp": Method.MTP,
    "nextn": Method.MTP,
}


@dataclass(slots=True)
class Told:
    """What a file tells of one run, gathered field by field; None and empty mean that it does not."""

    label: str = ""
    arm: Arm | None = None
    speculation: Speculation | None = None
    load: Load = field(default_factory=lambda: Load(concurrency=None, rate_per_s=None))
    requests: tuple[RequestRecord, ...] | None = None
    acceptance: dict[str, AcceptanceCounts] | None = None
    step_seconds: float | None = None
    summaries: dict[str, Summary] = field(default_factory=dict)
    window_s: float | None = None
    evidence: Evidence = Evidence.MEASURED
    arguments: dict[str, str] = field(default_factory=dict)
    cautions: list[Caution] = field(default_factory=list)

    def note(self, code: str, message: str) -> None:
        """Keep a caution."""
        self.cautions.append(Caution(code, message))


def found_of(told: Told, *, made_by: str, inputs: Mapping[str, str]) -> Found:
    """The run, as the plain arm where the file does not say.

    Raises:
        BadInputError: what was told is unlawful.

    """
    summaries, unlawful = lawful_summaries(told.summaries)
    run = Run(
        arm=told.arm or Arm.BASELINE,
        speculation=told.speculation,
        load=told.load,
        requests=told.requests,
        acceptance_by_segment=told.acceptance,
        step_seconds=told.step_seconds,
        summaries=summaries,
        window_s=told.window_s,
        provenance=Provenance(
            made_by=made_by, version=__version__, evidence=told.evidence, arguments=told.arguments, inputs=inputs, seed=None
        ),
        cautions=tuple(dict.fromkeys((*told.cautions, *unlawful))),
    )
    return Found(label=told.label, run=run, arm_stated=told.arm is not None)


def parsed_runs(objects: Sequence[Fields], read: Callable[[Fields], Found], *, name: str) -> tuple[Found, ...]:
    """Each object as a run, numbered where there are several; a repeated one is kept once, one that finished nothing is left out.

    Raises:
        NoEvidenceError: none finished a request.

    """
    distinct: list[Fields] = []
    for each in objects:
        if all(each.values != other.values for other in distinct):
            distinct.append(each)
    found, empty = [], None
    for each in distinct:
        try:
            found.append(read(each))
        except NoEvidenceError as error:
            empty = error
    if not found:
        raise NoEvidenceError(f"{printable(name)}: {empty or 'there is no run in it'}")
    noted = []
    if len(distinct) < len(objects):
        noted.append(
            Caution("duplicate_runs", f"{len(objects) - len(distinct)} of {len(objects)} runs in the file repeat another and were left out")
        )
    if len(found) < len(distinct):
        noted.append(
            Caution("empty_runs", f"{len(distinct) - len(found)} of {len(distinct)} runs in the file finished nothing and were left out")
        )
    if len(found) == 1:
        return (_with(found[0], "", noted),)
    return tuple(_with(each, each.label or str(i), noted) for i, each in enumerate(found, 1))


def _with(found: Found, label: str, cautions: Iterable[Caution]) -> Found:
    run = replace(found.run, cautions=(*found.run.cautions, *cautions))
    return replace(found, label=label, run=run)


def summary(value: float, statistic: str, n: int | None) -> Summary:
    """A figure without an interval: rounding and buckets are no sampling error, so they are none of its ends."""
    return Summary(value=value, statistic=statistic, n=n, low=None, high=None)


def tool_summaries(values: Mapping[str, float | None], metric: str, *, unit: float, n: int | None) -> dict[str, Summary]:
    """A tool's own statistics of one metric under our names; `values` by statistic, `unit` in seconds.

    Raises:
        BadInputError: a negative time.

    """
    found = {}
    for statistic, value in values.items():
        if value is None:
            continue
        if value < 0:
            raise BadInputError(f"{metric} {statistic} = {value!r} is below 0")
        found[summary_name(metric, statistic)] = summary(value * unit, statistic, n)
    return found


def requests_of(seen: Sequence[Seen], told: Told) -> None:
    """Make records of what was seen, with every latency's summary and what is doubtful about them.

    Where the tool's own mean pace is further than 2 % from ours, that is said.

    Raises:
        BadInputError: an unlawful request.

    """
    detail = detail_of(seen)
    told.requests = tuple(record_of(each, detail) for each in seen)
    told.cautions += detail_cautions(detail)
    ours, theirs = latency_summaries(told.requests), told.summaries
    mean, stated = ours.get("tpot_s"), theirs.get("tpot_s")
    if mean is not None and stated is not None and abs(mean.value - stated.value) > SUMMARIES_DIFFER * max(mean.value, stated.value):
        told.note(
            "summary_disagrees",
            f"the file states a mean TPOT of {stated.value * 1e3:.4g} ms, its requests give {mean.value * 1e3:.4g} ms; these are used",
        )
    told.summaries = {name: each for name, each in theirs.items() if name.split("_")[0] not in LATENCIES} | ours
    failed = sum(each.outcome is not Outcome.FINISHED for each in told.requests)
    if failed:
        told.note("requests_failed", f"{failed} of {len(told.requests)} requests did not finish; latencies are of the others")


LATENCIES = ("ttft", "tpot", "e2e", "chunk", "token")


def stated_load(*, rate_per_s: float | None, concurrency: int | None, requests: int | None, told: Told) -> None:
    """How requests were sent: `rate_per_s` infinite is a closed loop of `concurrency`, or all requests at once.

    Raises:
        BadInputError: a rate or a concurrency of nothing.

    """
    infinite = rate_per_s is not None and rate_per_s == float("inf")
    if infinite and concurrency is None and requests:
        told.load = Load(concurrency=requests, rate_per_s=None)
        told.note("all_at_once", f"all {requests} requests were sent at once: time to first token is mostly waiting for the others")
        return
    if rate_per_s is not None and not infinite:
        told.load = Load(concurrency=None, rate_per_s=rate_per_s)
        if concurrency is not None:
            told.note("rate_capped", f"at most {concurrency} requests were in flight, so a slow server was sent fewer than the stated rate")
        return
    if concurrency is not None and requests is not None and 0 < requests < concurrency:
        told.note("concurrency_not_reached", f"{requests} requests cannot keep {concurrency} in flight; the load was {requests} at most")
        concurrency = requests
    told.load = Load(concurrency=concurrency, rate_per_s=None)
    if concurrency is None:
        told.note(
            "load_unknown", "the file does not say how many requests were in flight or at which rate they came: compare equal loads only"
        )


def answers_cautions(texts: Iterable[object], told: Told) -> None:
    """Say where the answers show that acceptance is not that of real traffic: one answer repeated, or loops of one word."""
    answers = [each for each in texts if isinstance(each, str) and each]
    if len(answers) > 1 and len(set(answers)) == 1:
        told.note("one_answer_repeated", "all answers are the same text: repeats of one prompt say nothing about other prompts")
    loops = sum(_loops(each) for each in answers)
    if answers and loops * 2 > len(answers):
        told.note("degenerate_answers", "most answers repeat one word: acceptance on loops is not that of real answers")


def _loops(text: str) -> bool:
    words = text.split()
    return len(words) >= FEWEST_WORDS and max(words.count(each) for each in set(words[:50])) > MOSTLY_ONE_WORD * len(words)


def method_named(name: str | None) -> Method | None:
    """Our method for a server's name of it, None where we have none."""
    if name is None:
        return None
    folded = name.casefold().replace("-", "_")
    return METHODS.get(name.casefold()) or METHODS.get(folded) or (Method.MTP if folded.endswith("_mtp") else None)


def plain_name(text: str) -> str:
    """A model's name as it may be kept: of a path on somebody's machine the last part only."""
    return text.replace("\\", "/").rstrip("/").rpartition("/")[2] if text[:1] in "/~." or text[1:3] in (":\\", ":/") else text


def listed(found: Sequence[Found]) -> str:
    """The labels of several runs, with load and arm, for a message."""
    shown = [f"{printable(each.label)} ({each.run.load}{', ' + each.run.arm.value if each.arm_stated else ''})" for each in found]
    return ", ".join(shown[:20]) + (f" and {len(shown) - 20} more" if len(shown) > 20 else "")
