"""What a block's run says of the server beyond the answers."""

import pytest

from paceline.jobs.bench_runs import Measured, Settings, part_of, whole_run
from paceline.live.http_connection import Received, StreamEnd
from paceline.live.openai import Ask, Server
from paceline.live.sending import Sent
from paceline.run import Arm, Load, Run

SETTINGS = Settings(speculation=None, arguments={}, inputs={}, seed=1, cautions=(), count_tokens=None)


def sent(number: int) -> Sent:
    """One request that failed at once: its figures do not matter here."""
    ask = Ask(id=f"r{number}", segment="all", messages=None, prompt="p", max_tokens=4, temperature=0.0, seed=number, extra={})
    received = Received(
        sent_at_ns=1,
        status=None,
        headers={},
        packets=(),
        ended=StreamEnd.CUT,
        ended_at_ns=2,
        error="reset",
        received_bytes=0,
        sent_twice=False,
    )
    return Sent(ask=ask, due_ns=1, received=received)


def scrape(requests: int, *, asked: int = 0, hits: int = 0) -> str:
    """What a vLLM server counted."""
    label = '{engine="0",model_name="m"}'
    series = {
        "generation_tokens_total": 10 * requests,
        "time_to_first_token_seconds_count": requests,
        "time_to_first_token_seconds_sum": requests,
        "prefix_cache_queries_total": asked,
        "prefix_cache_hits_total": hits,
    }
    return "".join(f"vllm:{name}{label} {value}\n" for name, value in series.items())


def part(before: str | None, after: str | None, *, requests: int = 4) -> Run:
    made = Measured(
        arm=Arm.BASELINE,
        server=Server(url="http://127.0.0.1:1", api="completions", model="m", dialect=None),
        sent=tuple(sent(each) for each in range(requests)),
        counted=frozenset(f"r{each}" for each in range(requests)),
        warm_up_rounds=1,
    )
    return part_of(made, made.answers(None), Load(concurrency=2, rate_per_s=None), SETTINGS, watched=None, scrapes=(before, after))


def test_requests_that_the_server_answered_and_we_did_not_send_are_other_traffic() -> None:
    """Whoever shares the server: of ten requests in the block, six were somebody else's."""
    run = part(scrape(100), scrape(110))
    assert run.summaries["other_traffic_share"].value == pytest.approx(0.6)
    assert run.summaries["other_traffic_share"].n == 10
    assert part(scrape(100), scrape(103)).summaries["other_traffic_share"].value == 0


def test_what_the_prefix_cache_gave_is_of_the_block() -> None:
    """A cache that the other arm's block had warmed shows here."""
    run = part(scrape(0, asked=100, hits=50), scrape(4, asked=300, hits=200))
    assert run.summaries["prefix_cache_hit_share"].value == pytest.approx(0.75)
    worst = whole_run([run, part(scrape(4), scrape(8))])
    assert worst.summaries["prefix_cache_hit_share"].value == pytest.approx(0.75)


def test_without_two_scrapes_or_with_half_a_one_nothing_is_said() -> None:
    """A figure from one scrape would be of the server's whole life."""
    assert "other_traffic_share" not in part(scrape(1), None).summaries
    assert "other_traffic_share" not in part(scrape(5), scrape(5)).summaries
    broken = part(scrape(5), "no metrics")
    assert "other_traffic_share" not in broken.summaries
    assert [each.code for each in broken.cautions if each.code == "metrics_unread"] == ["metrics_unread"]
