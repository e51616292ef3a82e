"""What an SGLang server's log says of acceptance, as a run: ratios pooled with the requests running as weights.

Lines whose tokens per second and request lie below a tenth of the median include idle time (the first after a pause always does) and are
left out of the throughput, not of the acceptance.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from paceline import __version__
from paceline.errors import BadInputError, NoEvidenceError
from paceline.run import Arm, Evidence, Load, Provenance, Run, Summary
from paceline.servers.sglang.log import CAP, DecodeLine, ServerArgs, read_line, speculation_of
from paceline.verdict import Caution

__all__ = ["Width", "run_of_log", "width_of"]

WIDTHS = range(2, 257)
HALF = 0.005
SLACK = 1e-9
IDLE_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Width:
    """The configured width w (num_draft_tokens) that a log's lines allow, and whether their rate is τ / w; None where it cannot be told."""

    width: int | None
    rate_is_length_over_width: bool | None


def run_of_log(lines: Iterable[str], *, inputs: Mapping[str, str], most: int) -> Run:
    """The log as evidence. `lines` without colours and without what a container wrote before them; `inputs`: SHA-256 by file name;
    `most`: decode lines that are kept at most.

    Raises:
        NoEvidenceError: no decode line.
        BadInputError: more decode lines than that.

    """
    decodes, starts, noted = _read(lines, most)
    if not decodes:
        raise NoEvidenceError("the log has no line 'Decode batch' of SGLang's scheduler; it needs log level info and some traffic")
    verified = [each for each in decodes if each.length is not None and each.length >= 1 and each.running]
    width = width_of(verified, starts)
    models = {each.model for each in starts if each.model is not None}
    speculations = {speculation_of(each) for each in starts}
    throughput, idle = _generated_per_s(decodes)
    drafting = bool(verified) or any(each.algorithm for each in starts)
    ranks = len({each.rank for each in decodes})
    return Run(
        arm=Arm.SPECULATIVE if drafting else Arm.BASELINE,
        speculation=speculations.pop() if len(speculations) == 1 else None,
        load=Load(concurrency=None, rate_per_s=None),
        requests=None,
        acceptance_by_segment=None,
        step_seconds=None,
        summaries=_acceptance(verified, width.width) | ({} if throughput is None else {"output_tokens_per_s": throughput}),
        window_s=None,
        provenance=Provenance(
            made_by="sglang log",
            version=__version__,
            evidence=Evidence.MEASURED,
            arguments={"engines": str(ranks)} | ({"model": models.pop()} if len(models) == 1 else {}) | _limits(starts),
            inputs=inputs,
            seed=None,
        ),
        cautions=(*noted, *_cautions(verified, decodes, starts, width=width, idle=idle, ranks=ranks)),
    )


def _limits(starts: list[ServerArgs]) -> dict[str, str]:
    """What every start told alike."""
    told = {each.limits for each in starts}
    return dict(told.pop()) if len(told) == 1 else {}


def _read(lines: Iterable[str], most: int) -> tuple[list[DecodeLine], list[ServerArgs], list[Caution]]:
    """The leaders' decode lines, with SGLang's prefix where any line has it, and what the server was started with."""
    decodes: list[DecodeLine] = []
    starts: list[ServerArgs] = []
    for said in map(read_line, lines):
        if isinstance(said, ServerArgs):
            starts.append(said)
        elif said is not None and said.leads:
            decodes.append(said)
        if len(decodes) + len(starts) > most:
            raise BadInputError(f"the log has more than {most} decode lines; cut it to the window you ask about")
    bare = sum(not each.prefixed for each in decodes)
    if not bare:
        return decodes, starts, []
    if bare == len(decodes) and not starts:
        why = "no line has SGLang's prefix, so text that a user sent cannot be told from the server's own; keep the prefix when logging"
        return decodes, starts, [Caution("unprefixed_lines", why)]
    why = f"{bare} lines look like decode lines but lack SGLang's prefix: text of a request or of another program, not counted"
    return [each for each in decodes if each.prefixed], starts, [Caution("unprefixed_lines_ignored", why)]


def width_of(verified: Iterable[DecodeLine], starts: Iterable[ServerArgs]) -> Width:
    """The width that gives every line as printed: the configured one where that does, else the only one that does."""
    rated = [each for each in verified if each.rate is not None]
    configured = {each.width for each in starts} - {None}
    ratio = [each for each in WIDTHS if rated and all(_fits(line.length or 0, line.rate or 0, each) for line in rated)]
    drafts = [each for each in WIDTHS if rated and all(_fits((line.length or 0) - 1, line.rate or 0, each - 1) for line in rated)]
    known = configured.pop() if len(configured) == 1 else None
    if known in WIDTHS and (not rated or known in ratio or known in drafts):
        told = (known in ratio) != (known in drafts)
        return Width(width=known, rate_is_length_over_width=known in ratio if told else None)
    if known in WIDTHS or bool(ratio) == bool(drafts):
        return Width(width=None, rate_is_length_over_width=None)
    found = ratio or drafts
    return Width(width=found[0] if len(found) == 1 else None, rate_is_length_over_width=bool(ratio))


def _fits(above: float, rate: float, below: int) -> bool:
    """Whether above / below may have been printed as the rate, both of them with two digits."""
    return (above - HALF) / below <= rate + HALF + SLACK and (above + HALF) / below >= rate - HALF - SLACK


def _acceptance(verified: list[DecodeLine], width: int | None) -> dict[str, Summary]:
    """τ, and α where the width is known, with what the two printed digits leave."""
    if not verified:
        return {}
    weight = sum(each.running for each in verified)
    length, n = sum((each.length or 0) * each.running for each in verified) / weight, len(verified)
    found = {"acceptance_length": Summary(value=length, statistic="pooled", n=n, low=max(1.0, length - HALF), high=length + HALF)}
    if width is not None:
        low, value, high = (min(max(0.0, each - 1) / (width - 1), 1.0) for each in (length - HALF, length, length + HALF))
        found["alpha"] = Summary(value=value, statistic="pooled", n=n, low=low, high=high)
    return found


def _generated_per_s(decodes: Iterable[DecodeLine]) -> tuple[Summary | None, int]:
    """Tokens per second of each rank's busy intervals, ranks added up, and how many intervals with idle time were left out."""
    rated = [each for each in decodes if each.generated_per_s and each.running]
    if not rated:
        return None, 0
    typical = median((each.generated_per_s or 0) / each.running for each in rated)
    busy = [each for each in rated if (each.generated_per_s or 0) / each.running >= IDLE_SHARE * typical]
    value = sum(_pace([each for each in busy if each.rank == rank]) for rank in sorted({each.rank for each in busy}))
    return Summary(value=value, statistic="pooled", n=len(busy), low=None, high=None), len(rated) - len(busy)


def _pace(lines: list[DecodeLine]) -> float:
    """Tokens over seconds: an interval gives running · τ tokens per iteration, and every interval has as many iterations."""
    tokens = [each.running * max(1.0, each.length or 1.0) for each in lines]
    return sum(tokens) / sum(count / (each.generated_per_s or 1.0) for count, each in zip(tokens, lines, strict=True))


def _cautions(
    verified: list[DecodeLine], decodes: list[DecodeLine], starts: list[ServerArgs], *, width: Width, idle: int, ranks: int
) -> Iterator[Caution]:
    yield Caution(
        "whole_log",
        "the log counts from its first decode line to its last, warm-up and every load included; cut it to the window you ask about",
    )
    if len(starts) > 1:
        yield Caution("restarts", f"the server was started {len(starts) - 1} more times within this log; cut the log to one of its lives")
    if ranks > 1:
        yield Caution("several_engines", f"{ranks} data-parallel ranks write this log; they are pooled")
    if idle:
        yield Caution("idle_intervals", f"{idle} lines include idle time: their tokens per second are left out")
    if any(each.length is not None for each in decodes) and not verified:
        yield Caution("speculation_off", "accept len is 0 throughout: nothing was verified, which is not an acceptance of 0")
    if verified and max(each.running for each in verified) == CAP and any(each.running == CAP and each.queued for each in verified):
        yield Caution(
            "max_running_requests_48",
            f"never more than {CAP} requests ran while others waited: SGLang sets max_running_requests to {CAP} with speculation on unless "
            "it is given; give both servers the same",
        )
    if verified:
        yield from _of_ratios(verified, width)


def _of_ratios(verified: list[DecodeLine], width: Width) -> Iterator[Caution]:
    yield Caution(
        "ratios_without_counts",
        "SGLang logs ratios of 40 decode iterations each, without counts; they are pooled with the requests running as weights, and say "
        "nothing of positions",
    )
    if width.rate_is_length_over_width:
        yield Caution("rate_was_length", "the printed accept rate is accept len / width (before SGLang 0.5.11), not alpha")
    if width.width is None:
        why = "the lines fit no single width" if any(each.rate is not None for each in verified) else "no accept rate is printed"
        yield Caution("width_unknown", f"{why}, so alpha cannot be told; keep the line with server_args in the log")
    else:
        yield Caution(
            "configured_width", "alpha is over the configured width, not over what was really drafted (n-gram drafts may be shorter)"
        )
