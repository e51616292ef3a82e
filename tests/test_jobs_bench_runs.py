"""What a block's answers amount to, on servers that speak as llama-server does: a message per token, totals at the end, own counters."""

import json
from dataclasses import replace

import pytest

from paceline.errors import BadInputError
from paceline.files.benchfolder import Came
from paceline.jobs.bench_came import came_of, sent_of
from paceline.jobs.bench_runs import Measured, Scrapes, Settings, part_of, whole_run, with_reason
from paceline.live.http_connection import Received, StreamEnd
from paceline.live.openai import Ask, Server
from paceline.live.sending import Sent
from paceline.run import Arm, Load, Run

MS = 1_000_000
SERVER = Server(url="http://127.0.0.1:1", api="chat", model="m", dialect=None)
SETTINGS = Settings(speculation=None, arguments={}, inputs={}, seed=1, cautions=(), count_tokens=None)
COUNTERS = """\
llamacpp:tokens_predicted_total {tokens}
llamacpp:spec_decode_num_drafts_total {drafts}
llamacpp:spec_decode_num_draft_tokens_total {drafted}
llamacpp:spec_decode_num_accepted_tokens_total {accepted}
"""


def counters(*, tokens: int, drafts: int, drafted: int, accepted: int) -> str:
    return COUNTERS.format(tokens=tokens, drafts=drafts, drafted=drafted, accepted=accepted)


def llama_answer(at_ms: list[float], *, drafted: int, accepted: int) -> Received:
    """One message per token at these times, then usage and timings."""
    packets = [(round(at_ms[0] * MS), b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")]
    for number, each in enumerate(at_ms):
        delta = {"choices": [{"index": 0, "delta": {"content": " x"}, "finish_reason": None}]}
        timings = {"prompt_n": 5, "predicted_n": number + 1}
        packets.append((round(each * MS), f"data: {json.dumps({**delta, 'timings': timings})}\n\n".encode()))
    timings = {"prompt_n": 5, "predicted_n": len(at_ms)} | ({"draft_n": drafted, "draft_n_accepted": accepted} if drafted else {})
    usage = {"prompt_tokens": 5, "completion_tokens": len(at_ms)}
    stop = {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}
    end = f"data: {json.dumps(stop)}\n\ndata: {json.dumps({'choices': [], 'usage': usage, 'timings': timings})}\n\ndata: [DONE]\n\n"
    packets.append((round(at_ms[-1] * MS), end.encode()))
    return Received(
        sent_at_ns=0,
        status=200,
        headers={"content-type": "text/event-stream"},
        packets=tuple(packets),
        ended=StreamEnd.COMPLETE,
        ended_at_ns=round(at_ms[-1] * MS),
        error=None,
        received_bytes=1,
        sent_twice=False,
    )


def run_of(received: Received, *, arm: Arm = Arm.SPECULATIVE, scrapes: Scrapes = (None, None)) -> Run:
    ask = Ask(id="a", segment="chat", messages=None, prompt="p", max_tokens=7, temperature=0.0, seed=1, extra={})
    sent = Sent(ask=ask, due_ns=0, received=received)
    made = Measured(arm=arm, server=SERVER, sent=(sent,), counted=frozenset({"a"}), warm_up_rounds=1)
    load = Load(concurrency=1, rate_per_s=None)
    return part_of(made, made.answers(None), load, SETTINGS, watched=None, scrapes=scrapes)


def codes(run: Run) -> set[str]:
    return {each.code for each in run.cautions}


BURSTS = llama_answer([50, 74, 74.1, 74.2, 98, 98.1, 122], drafted=9, accepted=3)


def test_seconds_per_step_count_steps_not_messages() -> None:
    """llama-server sends the tokens of one step as several messages; the mean gap between them is the pace per token, not per step."""
    run = run_of(BURSTS)
    assert run.step_seconds == pytest.approx(0.024)
    assert run.acceptance.steps == 3
    assert run.acceptance.tokens_per_step == 2.0


def test_messages_in_bursts_are_said() -> None:
    """Somebody who compares its gaps with another server's would find a P50 of nothing and a diluted P99."""
    assert "tokens_in_bursts" in codes(run_of(BURSTS))
    plain = llama_answer([50, 70, 90, 110], drafted=0, accepted=0)
    assert "tokens_in_bursts" not in codes(run_of(plain, arm=Arm.BASELINE))


def test_a_speculative_server_that_drafts_nothing_is_said() -> None:
    """A draft model without --spec-type is loaded and not used, without a word (llama.cpp issue 25345)."""
    idle = counters(tokens=10, drafts=0, drafted=0, accepted=0), counters(tokens=17, drafts=0, drafted=0, accepted=0)
    run = run_of(llama_answer([50, 70, 90, 110], drafted=0, accepted=0), scrapes=idle)
    assert [each.code for each in run.cautions].count("nothing_drafted") == 1
    assert "acceptance_not_measured" not in codes(run)
    assert "nothing_drafted" not in codes(run_of(llama_answer([50, 70], drafted=0, accepted=0), arm=Arm.BASELINE, scrapes=idle))
    assert "nothing_drafted" not in codes(run_of(BURSTS))


def test_counters_of_other_servers_than_vllm_are_read() -> None:
    """An answer without counts of its own leaves the counters; those of llama-server say no less than vLLM's."""
    before, after = counters(tokens=0, drafts=0, drafted=0, accepted=0), counters(tokens=7, drafts=3, drafted=9, accepted=3)
    silent = replace(
        BURSTS, packets=tuple((at, data.replace(b'"draft_n"', b'"x"').replace(b"predicted_n", b"y")) for at, data in BURSTS.packets)
    )
    run = run_of(silent, scrapes=(before, after))
    assert run.provenance.arguments["acceptance_from"] == "the server's counters"
    assert (run.acceptance.drafts, run.acceptance.accepted_tokens) == (3, 3)


def test_a_baseline_that_drafts_is_said() -> None:
    """With speculation on in both arms the comparison shows nothing."""
    before, after = counters(tokens=0, drafts=0, drafted=0, accepted=0), counters(tokens=7, drafts=3, drafted=9, accepted=3)
    assert "baseline_drafts" in codes(run_of(BURSTS, arm=Arm.BASELINE, scrapes=(before, after)))


def came(**changes: object) -> Came:
    told = came_of(Sent(ask=ASK, due_ns=0, received=BURSTS))
    return replace(told, told={**told.told, **changes})


ASK = Ask(id="a", segment="chat", messages=None, prompt="p", max_tokens=7, temperature=0.0, seed=1, extra={})


def test_what_came_is_read_back_as_it_was() -> None:
    """A resume that loses an instant measures another server."""
    assert sent_of(came(), {"a": ASK}).received == BURSTS


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "other"},
        {"id": 3},
        {"ended": "banana"},
        {"at_ns": [1]},
        {"sizes": "x"},
        {"sizes": [-1]},
        {"due_ns": None},
        {"due_ns": 99 * 10**18},
        {"sent_at_ns": 10**12},
        {"ended_at_ns": 1},
        {"status": "200"},
        {"status": 10**6},
        {"headers": {"a": 1}},
        {"headers": []},
        {"error": 3},
        {"received_bytes": -1},
        {"sent_twice": None},
    ],
)
def test_what_came_and_is_damaged_is_refused(changes: dict[str, object]) -> None:
    """One flipped bit ends every resume in an internal fault."""
    with pytest.raises(BadInputError, match="damaged"):
        sent_of(came(**changes), {"a": ASK})


def test_what_came_without_one_of_its_fields_is_refused() -> None:
    """One flipped bit in a name ends every resume in an internal fault."""
    whole = came()
    for name in (
        "id",
        "due_ns",
        "sent_at_ns",
        "status",
        "headers",
        "ended",
        "ended_at_ns",
        "error",
        "received_bytes",
        "sent_twice",
        "at_ns",
        "sizes",
    ):
        told = {key: value for key, value in whole.told.items() if key != name}
        with pytest.raises(BadInputError, match="damaged"):
            sent_of(replace(whole, told=told), {"a": ASK})


def test_a_key_that_a_server_echoes_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is sent to a colleague."""
    monkeypatch.setenv("PACELINE_API_KEY", "predicted_n")
    told = came_of(Sent(ask=ASK, due_ns=0, received=replace(BURSTS, headers={"location": "/?predicted_n"}, error="predicted_n")))
    assert b"predicted_n" not in told.body
    assert "predicted_n" not in str(told.told)


def test_why_acceptance_is_not_known_is_said() -> None:
    """Whoever forgot the key for /metrics switches on what is on already."""
    silent = replace(
        BURSTS, packets=tuple((at, data.replace(b'"draft_n"', b'"x"').replace(b"predicted_n", b"y")) for at, data in BURSTS.packets)
    )
    said = {each.code: each.message for each in with_reason(run_of(silent), "GET /metrics: HTTP 401").cautions}
    assert said["acceptance_not_measured"].endswith("; GET /metrics: HTTP 401")
    both = (Sent(ask=ASK, due_ns=0, received=BURSTS), Sent(ask=replace(ASK, id="b"), due_ns=0, received=silent))
    made = Measured(arm=Arm.SPECULATIVE, server=SERVER, sent=both, counted=frozenset({"a", "b"}), warm_up_rounds=1)
    load = Load(concurrency=1, rate_per_s=None)
    told = part_of(made, made.answers(None), load, SETTINGS, watched=None, scrapes=(None, None)).cautions
    assert next(each.message for each in told if each.code == "acceptance_not_measured").endswith("1 of 2 answers told their own counts")


def test_lines_of_metrics_that_cannot_be_read_are_said() -> None:
    """A counter that is missing for its broken line counts as one that stood still."""
    before, after = counters(tokens=0, drafts=0, drafted=0, accepted=0), counters(tokens=7, drafts=3, drafted=9, accepted=3)
    assert "malformed_lines" in codes(run_of(BURSTS, scrapes=(before, f"{after}llamacpp:x 1 2 3 4\n")))


def cut_off(number: int) -> Sent:
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
        sent=tuple(cut_off(each) for each in range(requests)),
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
