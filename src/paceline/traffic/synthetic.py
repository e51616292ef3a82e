"""Workloads made from exchanges: as logged, as many requests as wanted, and with random arrivals.

What is kept of an exchange is its lengths and its segment. Outputs whose length nobody measured get one that the caller states.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import isfinite

import numpy as np

from paceline.errors import BadInputError
from paceline.traffic.exchange import Exchange, TokenStream
from paceline.workload import Request, Workload

__all__ = [
    "arrivals",
    "bursty_arrivals",
    "poisson_arrivals",
    "repeat_to",
    "rescaled_arrivals",
    "workload_from_prompts",
    "workload_from_streams",
]


def workload_from_streams(streams: Iterable[TokenStream], *, source: str, arrived_at_s: Sequence[float] | None) -> Workload:
    """One request per stream with its lengths, in order of arrival; without `arrived_at_s` (one per stream) all arrive at 0.

    The end-of-sequence token counts as an output token: the target decodes it.

    Raises:
        BadInputError: there are no streams, one has no prompt or output, or there is not one instant per stream.

    """
    kept = list(streams)
    instants = [0.0] * len(kept) if arrived_at_s is None else list(arrived_at_s)
    if len(instants) != len(kept):
        raise BadInputError(f"{source}: {len(instants)} instants of arrival for {len(kept)} exchanges; give one for each")
    requests = [
        Request(id=each.id, arrived_at_s=at_s, prompt_tokens=each.prompt.size, output_tokens=each.output.size, segment=each.segment)
        for each, at_s in zip(kept, instants, strict=True)
    ]
    return Workload(requests=tuple(sorted(requests, key=lambda each: each.arrived_at_s)), source=source, seed=None)


def workload_from_prompts(
    exchanges: Iterable[Exchange], *, prompt_tokens: Callable[[Exchange], int], output_tokens: int, source: str
) -> Workload:
    """One request per exchange, answered or not, all at 0: `prompt_tokens` counts each prompt, every output has `output_tokens`.

    The stated length is an assumption and not a measurement; whoever shows a result of it has to say so.

    Raises:
        BadInputError: there are no exchanges, or a length is below 1.

    """
    requests = (
        Request(id=each.id, arrived_at_s=0.0, prompt_tokens=prompt_tokens(each), output_tokens=output_tokens, segment=each.segment)
        for each in exchanges
    )
    return Workload(requests=tuple(requests), source=source, seed=None)


def repeat_to(workload: Workload, *, requests: int, seed: int) -> Workload:
    """`requests` requests drawn from the workload uniformly with replacement, all at 0: the same lengths and mix, as many as a run needs.

    Ids get the draw's number behind a `#`. Arrivals of the original are not kept: a drawn request has none.

    Raises:
        BadInputError: fewer than 1 request, or a negative seed.

    """
    if requests < 1:
        raise BadInputError(f"{requests} requests; at least 1 is needed")
    if seed < 0:
        raise BadInputError(f"the seed {seed} is negative; give one from 0 on")
    drawn = np.random.default_rng(seed).integers(len(workload.requests), size=requests)
    repeated = (
        replace(workload.requests[place], id=f"{workload.requests[place].id}#{number}", arrived_at_s=0.0)
        for number, place in enumerate(drawn.tolist(), 1)
    )
    return Workload(requests=tuple(repeated), source=workload.source, seed=seed)


def poisson_arrivals(workload: Workload, *, rate_per_s: float, rng: np.random.Generator) -> Workload:
    """The same requests in the same order, arriving as a Poisson process: gaps are exponential with mean 1 / rate, the first one included.

    Raises:
        BadInputError: the rate is not a positive number.

    """
    return _at(workload, arrivals(len(workload.requests), rate_per_s=rate_per_s, burstiness=1, rng=rng))


def bursty_arrivals(workload: Workload, *, rate_per_s: float, burstiness: float, rng: np.random.Generator) -> Workload:
    """The same requests in the same order, arriving as `arrivals` draws them.

    Raises:
        BadInputError: the rate or the burstiness is not a positive number.

    """
    return _at(workload, arrivals(len(workload.requests), rate_per_s=rate_per_s, burstiness=burstiness, rng=rng))


def arrivals(count: int, *, rate_per_s: float, burstiness: float, rng: np.random.Generator) -> tuple[float, ...]:
    """So many instants, in seconds: gaps from a Gamma distribution of shape `burstiness` and mean 1 / rate, the first one included.

    1 is a Poisson process; below 1 requests come in bursts (the gaps' coefficient of variation is 1 / √burstiness), above 1 more evenly.
    The word and the parameter are those of vLLM's `bench serve --burstiness`.

    Raises:
        BadInputError: the rate or the burstiness is not a positive number.

    """
    if not (isfinite(burstiness) and burstiness > 0):
        raise BadInputError(f"a burstiness of {burstiness!r}; give a number above 0, 1 for a Poisson process")
    if not (isfinite(rate_per_s) and rate_per_s > 0):
        raise BadInputError(f"an arrival rate of {rate_per_s!r} requests per second; give a number above 0")
    if burstiness == 1:
        return tuple(np.cumsum(rng.exponential(1 / rate_per_s, size=count)).tolist())
    return tuple(np.cumsum(rng.gamma(burstiness, 1 / (rate_per_s * burstiness), size=count)).tolist())


def rescaled_arrivals(workload: Workload, *, time_scale: float) -> Workload:
    """The same requests with their instants divided by `time_scale`: 2 sends the same traffic twice as fast.

    Raises:
        BadInputError: the scale is not a positive number.

    """
    if not (isfinite(time_scale) and time_scale > 0):
        raise BadInputError(f"a time scale of {time_scale!r}; give a number above 0, 2 for twice the rate")
    return workload if time_scale == 1 else _at(workload, [each.arrived_at_s / time_scale for each in workload.requests])


def _at(workload: Workload, instants_s: Sequence[float]) -> Workload:
    timed = (replace(each, arrived_at_s=at_s) for each, at_s in zip(workload.requests, instants_s, strict=True))
    return Workload(requests=tuple(timed), source=workload.source, seed=workload.seed)
