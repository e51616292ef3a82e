"""Requests and workloads: what is refused, what is added up, and the shares a blend is weighted by."""

from math import isclose, nan

import numpy as np
import pytest
from hypothesis import given, settings

from paceline.errors import BadInputError, NoEvidenceError
from paceline.workload import Request, Workload
from tests.strategies import workloads


def request(name: str, arrived_at_s: float = 0.0, *, prompt: int = 100, output: int = 10, segment: str = "all") -> Request:
    """A request of which a test states only what it is about."""
    return Request(id=name, arrived_at_s=arrived_at_s, prompt_tokens=prompt, output_tokens=output, segment=segment)


def workload(*requests: Request) -> Workload:
    """A workload of these."""
    return Workload(requests=requests, source="log.jsonl", seed=None)


@pytest.mark.parametrize("arrived_at_s", [-0.001, nan, float("inf")])
def test_a_request_arrives_at_a_time_from_zero_on(arrived_at_s: float) -> None:
    """The simulator's heap never finds its end."""
    with pytest.raises(BadInputError, match=r"request 'a': arrived_at_s = .* is not a time from 0 on"):
        request("a", arrived_at_s)


@pytest.mark.parametrize("tokens", [0, -1, 1.5, nan, True])
def test_a_request_has_at_least_one_whole_token_each_way(tokens: int) -> None:
    """A log with an empty answer gives a request that never ends, NaN gives one that ends never or always."""
    with pytest.raises(BadInputError, match="prompt_tokens"):
        request("a", prompt=tokens)
    with pytest.raises(BadInputError, match="output_tokens"):
        request("a", output=tokens)


def test_numpy_integers_are_token_counts() -> None:
    """Every reader of a trace has to convert its columns one by one."""
    assert request("a", prompt=np.int64(5)).prompt_tokens == 5  # type: ignore[arg-type]  # numpy's integers are meant to pass


def test_a_segment_has_a_name() -> None:
    """A report has a row without a name."""
    with pytest.raises(BadInputError, match="use 'all'"):
        request("a", segment="")


def test_a_workload_holds_something() -> None:
    """Percentiles of nothing are reported as zero."""
    with pytest.raises(BadInputError, match="no requests"):
        workload()


def test_a_workload_is_in_order_of_arrival() -> None:
    """The simulator's clock goes back."""
    with pytest.raises(BadInputError, match="'b' arrives before"):
        workload(request("a", 2.0), request("b", 1.0))
    workload(request("a", 1.0), request("b", 1.0))


def test_ids_name_one_request_each() -> None:
    """Two arms are paired by id, and one request is compared with another."""
    with pytest.raises(BadInputError, match="'a' stands 2 times"):
        workload(request("a"), request("b"), request("a"))


def test_a_workload_adds_up_by_hand() -> None:
    """Mean context, and with it the KV read cost of every forecast, is off."""
    mixed = workload(request("a", prompt=100, output=20, segment="code"), request("b", prompt=40, output=60, segment="chat"))
    assert (mixed.prompt_tokens, mixed.output_tokens) == (140, 80)
    assert mixed.segments == ("chat", "code")
    assert mixed.output_shares() == {"chat": 0.75, "code": 0.25}
    # (100 + 10)·20 + (40 + 30)·60 = 6400 over 80 tokens
    assert mixed.mean_context_tokens == 80.0


def test_one_segment_is_a_workload_of_its_own() -> None:
    """A segment's own forecast is made of everybody's requests."""
    code = request("b", 1.0, segment="code")
    assert workload(request("a", segment="chat"), code).only("code") == workload(code)


def test_an_absent_segment_is_no_evidence_and_the_present_ones_are_named() -> None:
    """A policy's claim on a segment nobody sent passes; a hostile name in the log steers the terminal."""
    with pytest.raises(NoEvidenceError, match=r"no request of segment 'code'; there are 'ch\\x1bat'"):
        workload(request("a", segment="ch\x1bat")).only("code")


@settings(max_examples=50)
@given(workloads())
def test_shares_add_up_to_one_and_segments_to_the_whole(drawn: Workload) -> None:
    """A blend by generated tokens is weighted by something else."""
    shares = drawn.output_shares()
    assert isclose(sum(shares.values()), 1.0)
    assert tuple(shares) == drawn.segments
    parts = [drawn.only(name) for name in drawn.segments]
    assert sum(len(part.requests) for part in parts) == len(drawn.requests)
    assert sum(part.output_tokens for part in parts) == drawn.output_tokens
    assert sum(part.prompt_tokens for part in parts) == drawn.prompt_tokens


@settings(max_examples=50)
@given(workloads())
def test_mean_context_lies_between_the_shortest_and_the_longest(drawn: Workload) -> None:
    """A forecast prices a context that no request has."""
    contexts = [each.prompt_tokens + each.output_tokens / 2 for each in drawn.requests]
    assert min(contexts) - 1e-6 <= drawn.mean_context_tokens <= max(contexts) + 1e-6
