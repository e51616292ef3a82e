"""Goodput: what was served within the latencies that were promised, per second and as a share.

A request is good where it finished and each promised latency holds for it; one of a single token has no TPOT and breaks no promise of it.
Refused and failed requests are not good (Zhong et al. 2024, DistServe, OSDI: goodput counts requests that meet every objective).
"""

from dataclasses import dataclass, replace
from math import isfinite

import numpy as np

from paceline.errors import BadInputError, NoEvidenceError, printable
from paceline.latency import RequestTiming
from paceline.run import Run
from paceline.stats.intervals import wilson
from paceline.verdict import Estimate

__all__ = ["Goodput", "Slo", "goodput", "promised", "promising"]

NAMES = ("ttft_s", "tpot_s", "e2e_s")
ARGUMENT = "slo"


@dataclass(frozen=True, slots=True)
class Slo:
    """The latencies promised to each request, in seconds; None where nothing is promised."""

    ttft_s: float | None
    tpot_s: float | None
    e2e_s: float | None

    def __post_init__(self) -> None:
        """Reject a promise of nothing, and of no positive time.

        Raises:
            BadInputError: with the value.

        """
        given = [each for each in (self.ttft_s, self.tpot_s, self.e2e_s) if each is not None]
        if not given:
            raise BadInputError("an objective needs at least one of ttft, tpot and e2e")
        if not all(isfinite(each) and each > 0 for each in given):
            raise BadInputError(f"an objective is a time above 0, not {given!r}")

    @classmethod
    def stated_in(cls, text: str) -> "Slo":
        """The promise that `str` wrote: `ttft_s=0.5,tpot_s=0.05`.

        Raises:
            BadInputError: another text.

        """
        pairs = dict(each.partition("=")[::2] for each in text.split(","))
        try:
            seconds = {name: float(value) for name, value in pairs.items()}
        except ValueError:
            seconds = {}
        if not seconds or not set(seconds) <= set(NAMES):
            raise BadInputError(f"objectives {printable(text)} are not of the form ttft_s=0.5,tpot_s=0.05,e2e_s=9")
        return cls(**{name: seconds.get(name) for name in NAMES})

    def __str__(self) -> str:
        """What was promised, in seconds, as `stated_in` reads it."""
        return ",".join(f"{name}={getattr(self, name)!r}" for name in NAMES if getattr(self, name) is not None)

    def holds_for(self, timing: RequestTiming) -> bool:
        """Whether a finished request kept every promise."""
        if not timing.chunk_at_s.size:
            return False
        if self.ttft_s is not None and timing.ttft_s > self.ttft_s:
            return False
        if self.e2e_s is not None and timing.e2e_s > self.e2e_s:
            return False
        return self.tpot_s is None or timing.output_tokens < 2 or timing.tpot_s <= self.tpot_s


@dataclass(frozen=True, slots=True)
class Goodput:
    """The share of requests that are good, and good requests and their output tokens per second of the window (None without one)."""

    share: Estimate
    requests_per_s: float | None
    output_tokens_per_s: float | None


def goodput(run: Run, slo: Slo, *, confidence: float) -> Goodput:
    """One arm's goodput; the share has Wilson's interval over all of the arm's requests.

    Raises:
        NoEvidenceError: the run has no per-request records, or no request.

    """
    if run.requests is None:
        raise NoEvidenceError("goodput needs per-request records; this run has only summaries")
    tokens = np.array([each.output_tokens for each in run.finished if slo.holds_for(each.timing)], dtype=np.int64)
    return Goodput(
        share=wilson(successes=len(tokens), n=len(run.requests), confidence=confidence),
        requests_per_s=len(tokens) / run.window_s if run.window_s else None,
        output_tokens_per_s=int(tokens.sum()) / run.window_s if run.window_s else None,
    )


def promised(run: Run) -> Slo:
    """The latencies that a run's provenance says were promised.

    Raises:
        BadInputError: they cannot be read.
        NoEvidenceError: none were.

    """
    text = run.provenance.arguments.get(ARGUMENT)
    if text is None:
        raise NoEvidenceError("the run states no promised latencies, so it has no goodput; simulate --slo --out writes runs that do")
    return Slo.stated_in(text)


def promising(run: Run, slo: Slo) -> Run:
    """The run as one that states these promised latencies, whatever it stated before."""
    return replace(run, provenance=replace(run.provenance, arguments={**run.provenance.arguments, ARGUMENT: str(slo)}))
