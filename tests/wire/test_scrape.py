"""Metrics scraped over real HTTP on loopback, from servers that behave badly."""

import gzip
import json
import socket
import time
from collections.abc import Callable, Sequence

import pytest

from paceline.errors import BadInputError, NoEvidenceError, PacelineError, ServerFaultError, UnknownNameError
from paceline.live.fetch import fetch, metrics_url
from paceline.live.openai import KEY_VARIABLE
from paceline.live.scrape import Watch, measure_server
from paceline.run import Run
from tests.conftest import Answer
from tests.wire.metrics_server import MetricsServer, Script, answer, serving, vllm_text

SHORT_S = 0.3


def nothing(_: float) -> None:
    """No progress to tell."""


def measured(server: MetricsServer, *, every_s: float = 0.1, model: str | None = None, timeout_s: float = 5.0) -> Run:
    watch = Watch(url=server.url, model=model, window_s=SHORT_S, every_s=every_s, timeout_s=timeout_s)
    return measure_server(watch, progress=nothing)


def scripted(*scripts: Script) -> Run:
    with serving(*scripts) as server:
        return measured(server)


def codes(run: Run) -> list[str]:
    return [each.code for each in run.cautions]


def test_a_window_is_what_happened_between_its_first_and_last_scrape() -> None:
    """Whoever measures a server that was warmed up: the 100 drafts before are not in the figures, the pace is the window's own."""
    run = scripted(answer(vllm_text(100)), answer(vllm_text(110)), answer(vllm_text(150)))
    counts = run.acceptance
    assert (counts.drafts, counts.drafted_tokens, counts.accepted_tokens, counts.steps) == (50, 150, 100, 50)
    assert run.step_seconds == pytest.approx(0.05)
    assert run.window_s is not None
    assert SHORT_S <= run.window_s < 3
    assert run.summaries["output_tokens_per_s"].value == pytest.approx(150 / run.window_s)
    assert list(run.provenance.inputs) == ["scrape first", "scrape last"]
    assert codes(run) == []


def test_gauges_are_sampled_within_the_window() -> None:
    """Whoever asks how many requests were running: one look at the end sees the empty server after the test."""
    run = scripted(answer(vllm_text(1, running=4)), answer(vllm_text(2, running=8)), answer(vllm_text(3, running=0)))
    running = run.summaries["requests_running"]
    assert (running.statistic, running.low, running.high) == ("mean of scrapes", 0, 8)
    assert 0 < running.value < 8


def test_a_restart_in_the_window_counts_what_was_seen_on_both_sides() -> None:
    """Whoever's server is restarted by its orchestrator: 20 drafts before and 7 after it, and never a negative rate."""
    run = scripted(
        answer(vllm_text(100)), answer(vllm_text(120)), answer(vllm_text(5, started_at_s=200.0)), answer(vllm_text(7, started_at_s=200.0))
    )
    assert run.acceptance.drafts == 27
    assert codes(run) == ["counter_reset"]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (answer("oops", status="500 Internal Server Error"), "answers 500"),
        (answer(vllm_text(105), length=9999), "half a scrape"),
        (answer(vllm_text(105)[:-9]), "half a scrape"),
        (answer(vllm_text(105).rpartition("vllm:num_requests")[0].rpartition("vllm:inter")[0]), "half a scrape"),
        (answer(b"\xff\xfe\n"), "no UTF-8"),
        (answer(gzip.compress(vllm_text(105).encode())[:-4], headers=["Content-Encoding: gzip"]), "half a scrape"),
        (answer(b"no gzip", headers=["Content-Encoding: gzip"]), "damaged gzip"),
        (answer("x", headers=["Content-Encoding: br"]), "'br'"),
        (b"no HTTP at all\r\n\r\n", "cannot be read"),
        (b"", "cannot be read"),
    ],
)
def test_a_scrape_that_fails_twice_is_left_out_and_told(bad: bytes, why: str) -> None:
    """Whoever scrapes through a proxy that hiccups: the window stands on the good scrapes, and the fault is not silent."""
    run = scripted(answer(vllm_text(100)), bad, bad, answer(vllm_text(150)))
    assert run.acceptance.drafts == 50
    assert codes(run) == ["scrapes_failed"]
    assert why in run.cautions[0].message


def test_one_fault_is_tried_again_and_forgotten() -> None:
    """Whoever hits a server in its garbage collection: the second try answers and nothing is missing."""
    run = scripted(answer("", status="503 Busy"), answer(vllm_text(100)), answer(vllm_text(150)))
    assert run.acceptance.drafts == 50
    assert codes(run) == []


def test_a_server_that_dies_leaves_no_figure() -> None:
    """Whoever measures a server that crashed at once: one scrape is no window."""
    with (
        serving(answer(vllm_text(100)), answer("", status="502 Bad Gateway")) as server,
        pytest.raises(ServerFaultError, match=r"start only.*502"),
    ):
        measured(server)


@pytest.mark.parametrize(
    ("script", "fault", "why"),
    [
        (answer("", status="302 Found", headers=["Location: http://127.0.0.1:1/"]), ServerFaultError, "redirects"),
        (answer("", status="401 No"), ServerFaultError, KEY_VARIABLE),
        (answer("", status="404 No"), ServerFaultError, "--enable-metrics"),
        (answer("<html>\n"), BadInputError, "no line is a Prometheus sample"),
        (answer("up 1\n"), BadInputError, "without series of vLLM"),
        (answer(vllm_text(1) + 'sglang:num_running_reqs{model_name="m"} 1\n'), BadInputError, "vllm and sglang"),
        (answer(vllm_text(1) + 'vllm:generation_tokens_total{engine="0",model_name="n"} 1\n'), BadInputError, "--model"),
    ],
)
def test_a_server_that_cannot_be_measured_is_refused_at_the_start(script: bytes, fault: type[PacelineError], why: str) -> None:
    """Whoever gives the wrong address: the answer comes at once, not after the window."""
    with serving(script) as server, pytest.raises(fault, match=why):
        measured(server)


def test_a_model_is_chosen_by_name() -> None:
    """Whoever scrapes a gateway: the other model's counters are not in the figure."""
    other = 'vllm:generation_tokens_total{engine="0",model_name="n"} 1\n'
    with serving(answer(vllm_text(1) + other), answer(vllm_text(3) + other)) as server:
        assert measured(server, model="m").acceptance.drafts == 2
        with pytest.raises(UnknownNameError):
            measured(server, model="k")


def test_an_idle_server_is_no_evidence() -> None:
    """Whoever forgot to send traffic: exit code 4 and not an acceptance of 0."""
    with serving(answer(vllm_text(100))) as server, pytest.raises(NoEvidenceError, match="no token in this window; send traffic"):
        measured(server)


def drip(client: socket.socket) -> None:
    """An answer of one byte every now and then, for as long as anybody listens."""
    client.sendall(b"HTTP/1.1 200 OK\r\n")
    client.settimeout(0.05)
    for _ in range(200):
        try:
            if not client.recv(1):
                return
        except TimeoutError:
            client.sendall(b"X")


def test_a_server_that_drips_is_one_that_does_not_answer() -> None:
    """Whoever's server hangs while it still sends bytes: the time-out is for the whole answer."""
    with serving(drip) as server:
        start = time.monotonic()
        with pytest.raises(ServerFaultError, match=r"within 0\.2 s"):
            fetch(metrics_url(server.url), 0.2)
        assert time.monotonic() - start < 2


def test_an_answer_above_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is sent a gzip bomb: 64 MiB are unpacked and no more."""
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    bomb = gzip.compress(bytes(65 * 2**20), compresslevel=1)
    with serving(answer(bomb, headers=["Content-Encoding: gzip"])) as server, pytest.raises(ServerFaultError, match="64 MiB, unpacked"):
        fetch(metrics_url(server.url), 10.0)
    assert b"Authorization" not in server.heads[0]


def test_gzip_is_asked_for_and_unpacked_and_the_key_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever scrapes over a slow line with a key: both are in the request, and the key is nowhere else."""
    monkeypatch.setenv(KEY_VARIABLE, "s3cret")
    packed = answer(gzip.compress(b"up 1\n"), headers=["Content-Encoding: gzip"])
    with serving(packed, answer("", status="403 No")) as server:
        assert fetch(metrics_url(server.url), 5.0) == b"up 1\n"
        assert b"Accept-Encoding: gzip" in server.heads[0]
        assert b"Authorization: Bearer s3cret" in server.heads[0]
        with pytest.raises(ServerFaultError) as refusal:
            fetch(metrics_url(server.url), 5.0)
    assert "s3cret" not in str(refusal.value)


def test_chunked_answers_are_read_whole_or_not_at_all() -> None:
    """Whoever's proxy chunks: the end is known, so a missing end is half a scrape."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    with serving(head + b"5\r\nup 1\n\r\n0\r\n\r\n", head + b"5\r\nup 1\n\r\n") as server:
        assert fetch(metrics_url(server.url), 5.0) == b"up 1\n"
        with pytest.raises(ServerFaultError, match="cannot be read"):
            fetch(metrics_url(server.url), 5.0)


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ("http://h:8000", "http://h:8000/metrics"),
        ("http://h:8000/", "http://h:8000/metrics"),
        ("https://h/v1/", "https://h/metrics"),
        ("http://h/prometheus/metrics", "http://h/prometheus/metrics"),
        ("http://[::1]:8000/a/v1", "http://[::1]:8000/a/metrics"),
    ],
)
def test_the_address_of_the_metrics_follows_from_the_server_s(given: str, asked: str) -> None:
    """Whoever copies the base URL of a client: it is what `--url` takes."""
    assert metrics_url(given) == asked


@pytest.mark.parametrize(
    "given",
    [
        "h:8000",
        "ftp://h/",
        "http://",
        "http://h:x/",
        "http://u:p@h/",
        "http://h/?key=1",
        "http://h/#a",
        "http://h/\r\nX: y",
        "http://h/ a",
        "http://[h/",
    ],
)
def test_an_address_that_is_none_or_holds_a_secret_is_refused(given: str) -> None:
    """Whoever pastes a password into the address: it would be written into the run file."""
    with pytest.raises(BadInputError) as refusal:
        metrics_url(given)
    assert "u:p" not in str(refusal.value)


def test_a_window_has_a_length() -> None:
    """Whoever types 0s: refused, not divided by."""
    with pytest.raises(BadInputError, match="every_s"):
        Watch(url="http://h", model=None, window_s=1.0, every_s=0.0, timeout_s=1.0)


def test_ctrl_c_keeps_the_window_so_far() -> None:
    """Whoever stops a long measurement: what was measured is the answer, and that it was cut is said."""
    passed: list[float] = []

    def interrupt(seconds: float) -> None:
        passed.append(seconds)
        if len(passed) == 2:
            raise KeyboardInterrupt

    with serving(answer(vllm_text(100)), answer(vllm_text(140))) as server:
        watch = Watch(url=server.url, model=None, window_s=600.0, every_s=60.0, timeout_s=5.0)
        run = measure_server(watch, progress=interrupt)
    assert run.acceptance.drafts == 40
    assert codes(run) == ["interrupted"]
    assert run.window_s is not None
    assert run.window_s < 10


def test_iterations_are_added_up_over_a_window() -> None:
    """Whoever measures TensorRT-LLM: each reading hands out what came since the last, and the first is from before the window."""

    def reading(*numbers: int) -> bytes:
        spec = {"numDraftTokens": 6, "numAcceptedTokens": 4, "numRequestsWithDraftTokens": 2}
        listed = [
            {"iter": i, "iterLatencyMS": 20.0, "inflightBatchingStats": {"numGenRequests": 2}, "specDecodingStats": spec} for i in numbers
        ]
        return answer(json.dumps(listed))

    run = scripted(reading(1, 2, 3), reading(4, 5), reading(6), answer("[]"))
    assert (run.acceptance.drafts, run.acceptance.accepted_tokens, run.acceptance.steps) == (6, 12, 6)
    assert run.step_seconds == pytest.approx(0.02)
    assert codes(run) == []


def test_the_verb_measures_a_running_server(paceline: Callable[[Sequence[str]], Answer]) -> None:
    """Whoever types it: JSON with the window's figures, and the reason why there is no interval."""
    with serving(answer(vllm_text(100)), answer(vllm_text(150))) as server:
        said = paceline(["measure", "--url", server.url, "--window", "200ms", "--every", "100ms", "--json"])
    body = json.loads(said.out)
    assert said.code == 0
    assert (body["acceptance"]["drafts"], body["acceptance"]["alpha"]["value"]) == (50, pytest.approx(2 / 3))
    assert body["acceptance"]["alpha"]["low"] is None
    assert "no interval" in body["no_interval"]


def test_the_verb_refuses_options_that_do_nothing(paceline: Callable[[Sequence[str]], Answer]) -> None:
    """Whoever gives a window to a file, or two sources: nothing is silently ignored."""
    assert paceline(["measure", "x.prom", "--window", "1s"]).code == 2
    assert paceline(["measure", "x.prom", "--url", "http://h"]).code == 2
    assert paceline(["measure"]).code == 2
    refused = paceline(["measure", "--url", "http://127.0.0.1:1", "--window", "1s"])
    assert refused.code == 3


def test_a_key_with_a_line_end_is_sent_without_it_and_an_impossible_one_is_not_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    """`export KEY=$(cat file)` with a line end, and the library quotes the header that it refuses."""
    monkeypatch.setenv(KEY_VARIABLE, "s3cret-one\n")
    leads = answer("", headers=["Location: http://x/?k=s3cret-one"], status="302 No")
    with serving(answer("# s3cret-one\n"), leads, answer("up 1\n")) as server:
        assert fetch(metrics_url(server.url), 5.0) == b"# **********\n"
        assert b"Authorization: Bearer s3cret-one\r\n" in server.heads[0]
        with pytest.raises(ServerFaultError) as refusal:
            fetch(metrics_url(server.url), 5.0)
        assert "s3cret" not in str(refusal.value)
        monkeypatch.setenv(KEY_VARIABLE, "s3cret\none")
        with pytest.raises(BadInputError, match="no header may have") as impossible:
            fetch(metrics_url(server.url), 5.0)
    assert "s3cret" not in str(impossible.value)
