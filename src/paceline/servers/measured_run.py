"""A window of a server's metrics as a `Run`: what those metrics measured, nothing else.

Totals cannot tell requests apart, so no figure here has an interval: its ends stay None.
"""

from collections.abc import Mapping

from paceline import __version__
from paceline.errors import NoEvidenceError
from paceline.run import Arm, Evidence, Load, Provenance, Run, Summary, lawful_summaries
from paceline.servers.window import Window

__all__ = ["to_run"]


def to_run(window: Window, *, arm: Arm | None, inputs: Mapping[str, str], window_s: float | None) -> Run:
    """The window as evidence. `inputs`: SHA-256 by name, for provenance; `window_s`: its length, None where the scrapes have no times.

    `arm` None takes the speculative arm where the server is set up to draft.

    Raises:
        NoEvidenceError: no token was generated, nothing drafted and nothing stated by the server.
        BadInputError: the counters contradict each other.

    """
    unknown = window.generation_tokens is None and window.gauges
    if not (window.generation_tokens or window.steps or window.drafts or window.drafted_tokens or window.stated or unknown):
        found = "; ".join(each.message for each in window.noted)
        remedy = "scrape before and after some traffic" if window_s is None else "send traffic while it watches, or give a longer --window"
        raise NoEvidenceError(f"the server generated no token in this window; {remedy}{found and f' ({found})'}")
    counts = window.acceptance
    summaries, unlawful = lawful_summaries(_summaries(window, window_s))
    arguments = {"model": window.model} if window.model else {}
    return Run(
        arm=arm or (Arm.SPECULATIVE if window.speculates else Arm.BASELINE),
        speculation=None,
        load=Load(concurrency=None, rate_per_s=None),
        requests=None,
        acceptance_by_segment=None if counts is None else {"all": counts},
        step_seconds=window.step_seconds,
        summaries=summaries,
        window_s=window_s,
        provenance=Provenance(
            made_by=window.source,
            version=__version__,
            evidence=Evidence.MEASURED,
            arguments={**arguments, "engines": str(len(window.engines))},
            inputs=inputs,
            seed=None,
        ),
        cautions=(*window.cautions, *unlawful),
    )


def _summaries(window: Window, window_s: float | None) -> dict[str, Summary]:
    means = {"ttft_s": window.first_token, "chunk_gap_s": window.step_gap, "tpot_s": window.tpot, "e2e_s": window.e2e}
    named = {name: _summary(each.mean, "mean", each.count) for name, each in means.items() if each is not None}
    named["tokens_per_step_emitted"] = _summary(window.tokens_per_step_emitted, "pooled", window.steps) or window.tokens_per_step_derived
    named["decode_tokens_per_s"] = _summary(window.decode_tokens_per_s, "pooled", window.decode.count if window.decode else None)
    if window_s and window.generation_tokens is not None:
        named["output_tokens_per_s"] = _summary(window.generation_tokens / window_s, "mean", None)
    if window.acceptance is None and not window.ratios_only:
        named["alpha"] = _summary(window.alpha, "pooled", window.drafted_tokens)
        named |= {name: _summary(getattr(window, name), "total", None) for name in ("drafts", "drafted_tokens", "accepted_tokens")}
    for name in ("generation_tokens", "prompt_tokens", "preemptions"):
        named[name] = _summary(getattr(window, name), "total", None)
    named |= {**window.stated, **window.gauges}
    return {name: each for name, each in named.items() if each is not None}


def _summary(value: float | None, statistic: str, n: int | None) -> Summary | None:
    return None if value is None else Summary(value=float(value), statistic=statistic, n=n, low=None, high=None)
