"""What the counters of vLLM's V0 engine (0.9.2 and before) allow to say: ratios only.

V0 calls a drafted token accepted when it matches, even after an earlier rejection (vllm issue 9565), and adds running totals up, so neither
its counts nor their differences are counts of ours. What is emitted is sound, and K follows from the efficiency gauge:

    efficiency = emitted · K / (drafted · (K + 1)),  so  K / (K + 1) = efficiency · drafted / emitted

The gauge is per engine, and so is K; drafts are drafted / K.
"""

from collections.abc import Iterable, Mapping

from paceline.run import Summary
from paceline.servers.stated_rates import differing
from paceline.servers.window import whole
from paceline.verdict import Caution

__all__ = ["V0_CAUTION", "is_v0", "v0_doubts", "v0_figures"]

DRAFTED = "spec_decode_num_draft_tokens_total"
ACCEPTED = "spec_decode_num_accepted_tokens_total"
EMITTED = "spec_decode_num_emitted_tokens_total"
RATE = "spec_decode_draft_acceptance_rate"
EFFICIENCY = "spec_decode_efficiency"
DRAFTS_V1 = "spec_decode_num_drafts_total"
MOST_DRAFT_TOKENS = 32

V0_CAUTION = Caution(
    "v0_metrics",
    "these are the V0 engine's counters (vLLM 0.9.2 and before): accepted tokens include matches after an earlier rejection, so their "
    "ratio is too high and compares with no V1 figure, and running totals are added up; measure acceptance on the V1 engine",
)


def is_v0(engines: Mapping[str, Mapping[str, float]]) -> bool:
    """Whether these are the V0 engine's series: its own ones, or V1's names without V1's engine label and drafts."""
    for engine, counters in engines.items():
        if {RATE, EFFICIENCY, EMITTED} & counters.keys():
            return True
        if ACCEPTED in counters and DRAFTS_V1 not in counters and not engine:
            return True
    return False


def v0_figures(engines: Iterable[Mapping[str, float]]) -> dict[str, Summary]:
    """The acceptance rate and length that V0's series give, pooled over engines by their drafts.

    `alpha` is (acceptance length − 1) / K, `acceptance_length` tokens per drafted step, `draft_tokens` K where all engines have the same,
    `alpha_as_v0_counts` accepted / drafted as V0 counts them: too high. A figure is left out where nothing was drafted or no K fits.
    """
    counters = tuple(engines)
    drafted, accepted, emitted = (sum(each.get(name, 0.0) for each in counters) for name in (DRAFTED, ACCEPTED, EMITTED))
    figures = {"alpha_as_v0_counts": accepted / drafted} if drafted and all(ACCEPTED in each for each in counters) else {}
    lengths = [K for each in counters if each.get(DRAFTED) and (K := _draft_tokens(each))]
    if lengths and len(lengths) == sum(1 for each in counters if each.get(DRAFTED)):
        drafts = sum(each[DRAFTED] / K for each, K in zip((each for each in counters if each.get(DRAFTED)), lengths, strict=True))
        length = emitted / drafts
        if 1 <= length <= max(lengths) + 1:
            figures |= {"acceptance_length": length, "alpha": (emitted - drafts) / drafted}
            figures |= {"draft_tokens": float(lengths[0])} if len(set(lengths)) == 1 else {}
    return {name: Summary(value=value, statistic="pooled", n=None, low=None, high=None) for name, value in figures.items()}


def v0_doubts(engines: Iterable[Mapping[str, float]]) -> tuple[Caution, ...]:
    """What the gauge of V0's acceptance rate says otherwise than its counters, both since the start."""
    return tuple(
        caution
        for each in engines
        for caution in differing(
            {"alpha": each.get(RATE)},
            drafts=None,
            drafted_tokens=whole(each, DRAFTED),
            accepted_tokens=whole(each, ACCEPTED),
        )
    )


def _draft_tokens(counters: Mapping[str, float]) -> int | None:
    emitted = counters.get(EMITTED, 0.0)
    share = counters.get(EFFICIENCY, 0.0) * counters[DRAFTED] / emitted if emitted else 0.0  # K / (K + 1)
    K = round(share / (1 - share)) if 0 < share < 1 else 0
    return K if 1 <= K <= MOST_DRAFT_TOKENS else None
