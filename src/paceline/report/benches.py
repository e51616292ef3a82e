"""What a load-test measured, as a dictionary for `--json` and as text: one arm or two, the client's own error, and every doubt.

Where the client's own error is a visible share of the effect, the arms are shown and not compared.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from paceline.decide.cautions import MOST_MISSING
from paceline.decide.own_share import CLIENT_SATURATED, client_cautions
from paceline.errors import NoEvidenceError, ascii_controls
from paceline.report.figures import MISSING, milliseconds, percent, plain
from paceline.report.json_view import acceptance_dict
from paceline.report.latencies import NAMES
from paceline.report.simulations import acceptance_of, arm_dict, arms_dict, arms_text, harmed_requests, paired_dict
from paceline.report.text import columns
from paceline.run import Run
from paceline.speculation.counts import AcceptanceCounts
from paceline.stats.looks import Looks
from paceline.verdict import Caution, Decision, Estimate

__all__ = ["bench_dict", "bench_text", "looks_dict", "looks_text", "saturated"]

REQUESTS_MISSING = "requests_missing"
NOTHING_TIMED = "nothing_timed"
NOT_COMPARABLE = (CLIENT_SATURATED, REQUESTS_MISSING, NOTHING_TIMED)
SHOWN = ("p50", "p90", "p95", "p99", "mean")


def bench_dict(baseline: Run | None, speculative: Run | None, *, confidence: float, rng: np.random.Generator) -> dict[str, Any]:
    """The arms that were measured, what was accepted, the comparison where there are two, the client's figures and the warnings.

    Raises:
        NoEvidenceError: neither arm was measured.

    """
    runs = [each for each in (baseline, speculative) if each is not None]
    if not runs:
        raise NoEvidenceError("neither arm was measured, so there is nothing to show")
    own = (caution for each in runs for caution in each.cautions)
    warnings = tuple(dict.fromkeys((*own, *client_cautions(runs), *_missing(runs))))
    body: dict[str, Any] = {"arms": {each.arm.value: arm_dict(each, confidence=confidence) for each in runs}}
    accepted = None if speculative is None else _acceptance(speculative, confidence, rng)
    body |= {"acceptance": accepted, "speedup": None, "harmed_share": None}
    if baseline is not None and speculative is not None and not any(each.code in NOT_COMPARABLE for each in warnings):
        body |= arms_dict(baseline, speculative, confidence=confidence, rng=rng) | {"acceptance": body["acceptance"]}
        body |= {
            "paired_differences": paired_dict(baseline, speculative, confidence=confidence),
            "harmed": harmed_requests(baseline, speculative, most=len(baseline.requests or ())),
        }
    return body | {
        "client": {each.arm.value: {name: summary.value for name, summary in each.summaries.items()} for each in runs},
        "warnings": [{"code": each.code, "message": each.message} for each in warnings],
    }


def _missing(runs: list[Run]) -> Iterator[Caution]:
    """Requests that did not finish leave a selection; said here too, because one arm alone comes to no gate."""
    for run in runs:
        asked, finished = len(run.requests or ()), len(run.finished)
        if not any(each.timing.chunk_at_s.size for each in run.finished):
            message = f"none of {asked} requests of the {run.arm.value} arm brought an answer with text, so nothing was measured"
            yield Caution(NOTHING_TIMED, message)
        if asked - finished > MOST_MISSING * asked:
            yield Caution(
                REQUESTS_MISSING,
                f"{asked - finished} of {asked} requests of the {run.arm.value} arm did not finish; those that did are the easy ones, so "
                "it does not compare",
            )


def _acceptance(run: Run, confidence: float, rng: np.random.Generator) -> dict[str, Any] | None:
    """With intervals by request where requests tell; else the totals, which have none."""
    found = acceptance_of(run, confidence=confidence, rng=rng) if any(each.acceptance for each in run.requests or ()) else None
    if found is not None or not run.acceptance_by_segment:
        return found
    segments: dict[str, tuple[AcceptanceCounts, dict[str, Estimate]]] = {
        name: (counts, {}) for name, counts in run.acceptance_by_segment.items()
    }
    return acceptance_dict(run.acceptance, {}, confidence=confidence, segments=segments)


def saturated(body: Mapping[str, Any]) -> bool:
    """Whether the arms were not compared, because of the client, of requests that did not finish, or because none was timed."""
    return any(each["code"] in NOT_COMPARABLE for each in body["warnings"])


def bench_text(baseline: Run | None, speculative: Run | None, body: Mapping[str, Any]) -> str:
    """The same figures as tables, then the client's own and the warnings."""
    if baseline is not None and speculative is not None:
        text = arms_text(baseline, speculative, body)
    else:
        (arm,) = body["arms"].values()
        text = _arm_text(next(iter(body["arms"])), arm, body["acceptance"] or {})
    client = [(f"client, {arm}", *_client_cells(figures)) for arm, figures in body["client"].items()]
    shown = columns(("", "late to send p99", "late to read p99", "processor", "tokens per chunk"), client)
    warned = [ascii_controls(f"warning [{each['code']}]: {each['message']}") for each in body["warnings"]]
    return "\n\n".join([text, shown, *warned])


def _client_cells(figures: Mapping[str, float]) -> tuple[str, ...]:
    share = figures.get("client_cpu_share")
    chunk = figures.get("tokens_per_chunk")
    late = (milliseconds(figures.get(name)) for name in ("client_late_s", "client_lag_s"))
    return (*late, MISSING if share is None else percent(share), MISSING if chunk is None else plain(chunk))


def _arm_text(name: str, arm: Mapping[str, Any], acceptance: Mapping[str, Any]) -> str:
    """One arm alone."""
    rows = [
        (label, *(milliseconds(None if arm[latency] is None else arm[latency][each]["value"]) for each in SHOWN))
        for latency, label in NAMES.items()
        if arm[latency] is not None
    ]
    throughput = arm["output_tokens_per_s"]
    served = [
        ("output tokens per second", MISSING if throughput is None else plain(throughput["value"])),
        ("requests", f"{arm['requests']:,}"),
        ("refused or failed", f"{arm['failed']:,}"),
        *((label, plain(acceptance[key]["value"])) for key, label in ACCEPTANCE.items() if acceptance.get(key)),
    ]
    return "\n\n".join([columns((name, *SHOWN), rows), columns(("", "value"), served)])


ACCEPTANCE = {"tokens_per_step": "tokens per step", "alpha": "acceptance rate α", "acceptance_length": "acceptance length τ"}


def looks_dict(looks: Looks | None) -> dict[str, Any] | None:
    """How often the test was looked at and what the last look said; None where its size was fixed."""
    if looks is None:
        return None
    told = {"taken": looks.taken, "planned": looks.planned, "most_requests": looks.most_requests, "decision": looks.decision.value}
    return told | {"stopped_early": looks.taken < looks.planned and looks.decision is not Decision.CANNOT_TELL}


def looks_text(looks: Mapping[str, Any]) -> str:
    """The same in a sentence."""
    stopped = "stopped there" if looks["stopped_early"] else f"{looks['most_requests']} requests per arm at most"
    return f"look {looks['taken']} of {looks['planned']} says {looks['decision'].replace('_', ' ')}; {stopped}"
