"""Workloads made from exchanges: lengths, repetition and arrivals."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError
from paceline.traffic.exchange import END_OF_SEQUENCE, Exchange, Message, TokenStream
from paceline.traffic.synthetic import (
    bursty_arrivals,
    poisson_arrivals,
    repeat_to,
    rescaled_arrivals,
    workload_from_prompts,
    workload_from_streams,
)
from paceline.workload import Request, Workload
from tests.strategies import workloads


def stream(name: str, *, prompt: int, output: int, segment: str = "chat") -> TokenStream:
    """A stream of that many tokens, the last of them the end of the sequence."""
    tokens = np.append(np.arange(output - 1, dtype=np.int32), np.int32(END_OF_SEQUENCE))
    return TokenStream(id=name, segment=segment, prompt=np.arange(prompt, dtype=np.int32), output=tokens, stopped=True)


def exchange(name: str, prompt: str) -> Exchange:
    """A prompt that nobody answered."""
    return Exchange(
        id=name,
        segment="chat",
        messages=(Message(role="user", content=prompt),),
        answer=None,
        finish_reason=None,
        prompt_token_ids=None,
        output_token_ids=None,
        arrived_at_s=None,
    )


def pair() -> Workload:
    """Two requests of unlike segments."""
    return workload_from_streams(
        [stream("a", prompt=5, output=2), stream("b", prompt=7, output=3, segment="code")], source="log", arrived_at_s=None
    )


def test_a_stream_becomes_a_request_of_its_lengths() -> None:
    """A simulation of other lengths than the log's answers another question; the end-of-sequence token is decoded too."""
    made = pair()
    assert made.requests == (
        Request(id="a", arrived_at_s=0.0, prompt_tokens=5, output_tokens=2, segment="chat"),
        Request(id="b", arrived_at_s=0.0, prompt_tokens=7, output_tokens=3, segment="code"),
    )
    assert (made.source, made.seed) == ("log", None)


def test_given_instants_are_kept_and_sorted() -> None:
    """A log written at the end of each answer is out of order by arrival, and a workload refuses that."""
    streams = [stream("a", prompt=5, output=2), stream("b", prompt=7, output=3)]
    made = workload_from_streams(streams, source="log", arrived_at_s=[2.0, 0.5])
    assert [(each.id, each.arrived_at_s) for each in made.requests] == [("b", 0.5), ("a", 2.0)]
    with pytest.raises(BadInputError, match="1 instants of arrival for 2 exchanges"):
        workload_from_streams(streams, source="log", arrived_at_s=[2.0])


def test_prompts_get_the_stated_output_length() -> None:
    """Outputs of unknown length would be guessed somewhere nobody looks."""
    made = workload_from_prompts(
        [exchange("a", "abc"), exchange("b", "de")], prompt_tokens=lambda each: len(each.messages[0].content), output_tokens=64, source="q"
    )
    assert [(each.prompt_tokens, each.output_tokens) for each in made.requests] == [(3, 64), (2, 64)]
    with pytest.raises(BadInputError, match="output_tokens"):
        workload_from_prompts([exchange("a", "abc")], prompt_tokens=lambda _: 1, output_tokens=0, source="q")


@pytest.mark.parametrize("requests", [0, -1])
def test_fewer_than_one_request_are_not_drawn(requests: int) -> None:
    """An empty run would report zero latency."""
    with pytest.raises(BadInputError, match="at least 1"):
        repeat_to(pair(), requests=requests, seed=0)


def test_a_negative_seed_is_refused() -> None:
    """The library's own message names no option."""
    with pytest.raises(BadInputError, match="seed -1 is negative"):
        repeat_to(pair(), requests=3, seed=-1)


@settings(max_examples=30, deadline=None)
@given(workloads(), st.integers(1, 60), st.integers(0, 2**32))
def test_draws_are_the_logs_own_requests_under_new_ids(workload: Workload, requests: int, seed: int) -> None:
    """Two runs with one seed must be byte-identical, and a drawn request must be one that really was."""
    made = repeat_to(workload, requests=requests, seed=seed)
    own = {(each.prompt_tokens, each.output_tokens, each.segment) for each in workload.requests}
    assert len({each.id for each in made.requests}) == requests
    assert {(each.prompt_tokens, each.output_tokens, each.segment) for each in made.requests} <= own
    assert all(each.arrived_at_s == 0 for each in made.requests)
    assert made == repeat_to(workload, requests=requests, seed=seed)
    assert made.seed == seed


def test_draws_keep_the_mix() -> None:
    """A mix that drifts makes another log: of 10 000 fair draws 5 000 are chat, give or take 250 (5 standard deviations)."""
    made = Counter(each.segment for each in repeat_to(pair(), requests=10_000, seed=7).requests)
    assert abs(made["chat"] - 5_000) < 250


def test_another_seed_draws_other_requests() -> None:
    """A seed without effect would make every repetition the same one."""
    assert repeat_to(pair(), requests=50, seed=1).requests != repeat_to(pair(), requests=50, seed=2).requests


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    """Division by it would put every arrival at infinity or at zero."""
    with pytest.raises(BadInputError, match="give a number above 0"):
        poisson_arrivals(pair(), rate_per_s=rate, rng=np.random.default_rng(0))


def test_poisson_gaps_have_the_rates_mean_and_keep_the_order() -> None:
    """Mean and standard deviation of 10 000 exponential gaps at 4 per second are 0.25 s, within 6 standard errors."""
    many = repeat_to(pair(), requests=10_000, seed=3)
    made = poisson_arrivals(many, rate_per_s=4.0, rng=np.random.default_rng(11))
    instants = np.array([each.arrived_at_s for each in made.requests])
    gaps = np.diff(instants, prepend=0.0)
    assert abs(gaps.mean() - 0.25) < 6 * 0.25 / 100
    assert abs(gaps.std() - 0.25) < 6 * 0.25 * np.sqrt(2) / 100
    assert [each.id for each in made.requests] == [each.id for each in many.requests]
    assert (made.source, made.seed) == (many.source, many.seed)
    assert made == poisson_arrivals(many, rate_per_s=4.0, rng=np.random.default_rng(11))


def many(n: int) -> Workload:
    """Requests of one length, all at 0."""
    requests = tuple(Request(id=str(i), arrived_at_s=0.0, prompt_tokens=5, output_tokens=2, segment="chat") for i in range(n))
    return Workload(requests=requests, source="log", seed=None)


def gaps_s(workload: Workload) -> np.ndarray:
    """Seconds between arrivals, the first one included."""
    return np.diff([0.0, *(each.arrived_at_s for each in workload.requests)])


@pytest.mark.parametrize("burstiness", [0.25, 4.0])
def test_bursts_keep_the_rate_and_spread_the_gaps_by_the_burstiness(burstiness: float) -> None:
    """The gaps' mean is 1 / rate and their deviation 1 / (rate · √burstiness), within 5.5 standard errors: vLLM's meaning of the word."""
    n, rate = 20_000, 5.0
    found = gaps_s(bursty_arrivals(many(n), rate_per_s=rate, burstiness=burstiness, rng=np.random.default_rng(1)))
    spread = 1 / rate / np.sqrt(burstiness)
    assert found.mean() == pytest.approx(1 / rate, abs=5.5 * spread / np.sqrt(n))
    # A Gamma's kurtosis is 3 + 6 / shape, so its variance has a relative standard error of √((2 + 6 / shape) / n).
    assert found.var() == pytest.approx(spread**2, rel=5.5 * np.sqrt((2 + 6 / burstiness) / n))


def test_a_burstiness_of_one_is_the_poisson_process() -> None:
    """The default must not change a figure that was published without it."""
    ours = bursty_arrivals(many(50), rate_per_s=3.0, burstiness=1.0, rng=np.random.default_rng(4))
    assert ours == poisson_arrivals(many(50), rate_per_s=3.0, rng=np.random.default_rng(4))


@pytest.mark.parametrize(("rate", "burstiness"), [(0.0, 2.0), (1.0, 0.0), (1.0, float("nan")), (float("inf"), 0.5)])
def test_impossible_bursts_are_refused(rate: float, burstiness: float) -> None:
    """A rate of 0 never sends anything."""
    with pytest.raises(BadInputError, match="above 0"):
        bursty_arrivals(many(2), rate_per_s=rate, burstiness=burstiness, rng=np.random.default_rng(1))


def test_twice_the_time_scale_is_twice_the_rate() -> None:
    """What would Friday's peak be at double the traffic: the same pattern, each gap half as long."""
    timed = poisson_arrivals(many(10), rate_per_s=1.0, rng=np.random.default_rng(1))
    assert gaps_s(rescaled_arrivals(timed, time_scale=2.0)) == pytest.approx(gaps_s(timed) / 2)
    assert rescaled_arrivals(timed, time_scale=1.0) is timed
    with pytest.raises(BadInputError, match="time scale"):
        rescaled_arrivals(timed, time_scale=0.0)
