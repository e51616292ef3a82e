"""Who asks for how many tokens, when, and of which segment.

A `Request` is what a user sends; a `Workload` is the ordered set of them. Lengths are tokens, instants are seconds from the workload's
own start. Nothing here knows about servers or drafts.
"""

from collections import Counter
from dataclasses import dataclass
from math import isfinite

from paceline.errors import BadInputError, NoEvidenceError, is_count, printable

__all__ = ["PREFIX_BLOCK_TOKENS", "Request", "Workload"]

PREFIX_BLOCK_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Request:
    """One request: `prompt_tokens` in, `output_tokens` out (both at least 1), sent at `arrived_at_s`, of kind `segment`.

    Where a trace has them, `prefix_hashes` name the prompt's blocks of `PREFIX_BLOCK_TOKENS` tokens, each together with all before it: two
    requests whose hashes begin alike begin with the same tokens. Few traces have them, so they may be left out.
    """

    id: str
    arrived_at_s: float
    prompt_tokens: int
    output_tokens: int
    segment: str
    prefix_hashes: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        """Reject lengths below 1 token, instants before the start and nameless segments.

        Raises:
            BadInputError: with the request's id and the value.

        """
        if not (isfinite(self.arrived_at_s) and self.arrived_at_s >= 0):
            raise BadInputError(f"request {printable(self.id)}: arrived_at_s = {self.arrived_at_s!r} is not a time from 0 on")
        for name in ("prompt_tokens", "output_tokens"):
            value = getattr(self, name)
            if not is_count(value, least=1):
                raise BadInputError(f"request {printable(self.id)}: {name} = {printable(value)}, but a whole number from 1 on is needed")
        if not self.segment:
            raise BadInputError(f"request {printable(self.id)}: the segment has no name; use 'all' where there is only one")


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests in order of arrival, where they came from (`source`) and the seed of what chance added to them.

    `seed` is None where nothing was drawn.
    """

    requests: tuple[Request, ...]
    source: str
    seed: int | None

    def __post_init__(self) -> None:
        """Reject an empty workload, one out of order, and two requests with one id.

        Raises:
            BadInputError: with the first offending request.

        """
        if not self.requests:
            raise BadInputError(f"{printable(self.source)}: no requests; a workload needs at least one")
        for before, after in zip(self.requests, self.requests[1:], strict=False):
            if after.arrived_at_s < before.arrived_at_s:
                raise BadInputError(
                    f"{printable(self.source)}: request {printable(after.id)} arrives before the one it follows; sort by arrival"
                )
        most_common, times = Counter(each.id for each in self.requests).most_common(1)[0]
        if times > 1:
            raise BadInputError(
                f"{printable(self.source)}: the id {printable(most_common)} stands {times} times; ids name one request each"
            )

    @property
    def segments(self) -> tuple[str, ...]:
        """The segments' names, sorted."""
        return tuple(sorted({each.segment for each in self.requests}))

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens of all requests."""
        return sum(each.prompt_tokens for each in self.requests)

    @property
    def output_tokens(self) -> int:
        """Output tokens of all requests."""
        return sum(each.output_tokens for each in self.requests)

    @property
    def mean_context_tokens(self) -> float:
        """Mean context a decode step sees: prompt plus half the output, weighted by output tokens (one step per token)."""
        weighted = sum((each.prompt_tokens + each.output_tokens / 2) * each.output_tokens for each in self.requests)
        return weighted / self.output_tokens

    def output_shares(self) -> dict[str, float]:
        """Each segment's share of generated tokens: the weights `g` of the harmonic blend. They add up to 1."""
        totals: Counter[str] = Counter()
        for each in self.requests:
            totals[each.segment] += each.output_tokens
        return {name: totals[name] / self.output_tokens for name in self.segments}

    def only(self, segment: str) -> "Workload":
        """The requests of one segment.

        Raises:
            NoEvidenceError: no request is of that segment.

        """
        kept = tuple(each for each in self.requests if each.segment == segment)
        if not kept:
            there_are = ", ".join(printable(each) for each in self.segments)
            raise NoEvidenceError(f"{printable(self.source)}: no request of segment {printable(segment)}; there are {there_are}")
        return Workload(requests=kept, source=self.source, seed=self.seed)
