"""The command line's contract: figures, JSON keys, exit codes, and a clear word on bad input."""

import gzip
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from paceline.cli.main import main
from tests.conftest import Answer

Paceline = Callable[[Sequence[str]], Answer]

LLAMA = ["--target", "llama-3.3-70b", "--gpu", "h100", "--gpus", "4"]
RATIO = {"value", "low", "high", "confidence", "n"}


def parsed(answer: Answer) -> dict[str, Any]:
    """The JSON a verb printed."""
    assert answer.code == 0, answer.err
    document: dict[str, Any] = json.loads(answer.out)
    assert list(document)[:2] == ["schema", "provenance"]
    return document


def chat_log(path: Path, *, answers: int, text: str = "the cat sat on the mat and the cat sat on the mat again") -> Path:
    """A small log with answers that repeat themselves."""
    lines = [
        json.dumps(
            {"messages": [{"role": "user", "content": f"question {i}"}, {"role": "assistant", "content": f"{text} {i}"}], "segment": "chat"}
        )
        for i in range(answers)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_the_lesson_gives_the_textbooks_numbers_and_leviathans_beside_them(paceline: Paceline) -> None:
    """Whoever checks us against the textbook must find its own figures first."""
    said = parsed(paceline(["lesson", "--alpha", "0.7", "--draft-tokens", "5", "--overhead", "0.1", "--json"]))
    assert said["expected_tokens"] == pytest.approx(4.5)
    assert round(said["speedup"], 2) == 4.09
    assert {wanted: round(alpha, 2) for wanted, alpha in said["alpha_for"].items()} == {"2": 0.24, "3": 0.46}
    assert round(said["iid"]["expected_tokens"], 2) == 2.94
    assert set(said["iid"]) >= {"expected_tokens", "speedup", "break_even_alpha", "alpha_for"}
    assert parsed(paceline(["lesson", "--alpha", "0.7", "--draft-tokens", "5", "--overhead", "0.15", "--json"]))[
        "break_even_alpha"
    ] == pytest.approx(0.03)


def test_a_blend_pools_by_drafted_tokens(paceline: Paceline) -> None:
    """.61 instead of .583 is the mistake that everybody's spreadsheet makes."""
    asked = ["lesson", "--segment", "chat:.7:.7", "--segment", "code:.3:.4", "--draft-tokens", "5", "--overhead", "0.1", "--json"]
    blend = parsed(paceline(asked))["blend"]
    assert round(blend["alpha"], 3) == 0.583
    assert round(blend["alpha_weighted_by_generated_tokens"], 2) == 0.61
    assert blend["segments"]["code"]["pays"] is True


def test_the_forecast_has_the_keys_scripts_rely_on(paceline: Paceline) -> None:
    """A renamed key breaks somebody's dashboard silently."""
    said = parsed(paceline(["forecast", *LLAMA, "--alpha", ".5", "--concurrency", "8,1", "--json"]))
    assert [row["concurrency"] for row in said["rows"]] == [1, 8]
    for row in said["rows"]:
        assert row["bound"] in {"memory", "compute", "communication", "overhead"}
        assert all(set(row[key]) == RATIO for key in ("step_time_ratio", "speedup", "break_even_alpha"))
        assert row["tokens_per_step"] == pytest.approx(2.5)
        assert 1 <= row["best_draft_tokens"] <= 8
    assert said["lesson"]["expected_tokens"] == pytest.approx(2.5)
    assert {each["code"] for each in said["when_not"]} >= {"short_outputs", "domain_without_its_own_head"}


def test_the_memory_of_the_published_head_is_exact(paceline: Paceline) -> None:
    """A head that is said to be smaller than it is makes a server die at its first long batch."""
    said = parsed(paceline(["memory", *LLAMA, "--method", "eagle3", "--json"]))
    assert round(said["draft_parameters"] / 1e9, 3) == 1.403
    assert round(2 * said["draft_parameters"] / 1e9, 2) == 2.81
    assert said["requests_lost"] == said["plain_requests"] - said["speculative_requests"] > 0


def test_replay_measures_a_log_and_says_how_it_read_it(paceline: Paceline, tmp_path: Path) -> None:
    """Acceptance in bytes that passes for acceptance in tokens would be believed."""
    said = parsed(paceline(["replay", str(chat_log(tmp_path / "log.jsonl", answers=12)), "--draft-tokens", "3", "--json"]))
    assert set(said["alpha"]) == RATIO
    assert said["steps"] >= said["drafts"] > 0
    assert said["segments"]["chat"]["drafts"] == said["drafts"]
    assert any("bytes" in note for note in said["notes"])
    assert said["provenance"]["inputs"].keys() == {"log.jsonl"}
    assert str(tmp_path) not in json.dumps(said), "an absolute path tells about the machine and changes from one to the next"


def test_replay_refuses_what_has_no_answers(paceline: Paceline, tmp_path: Path) -> None:
    """A made-up acceptance for prompts would look like a measurement."""
    log = tmp_path / "questions.jsonl"
    log.write_text('{"question_id": 1, "category": "writing", "turns": ["Write a poem.", "Again."]}\n', encoding="utf-8")
    answer = paceline(["replay", str(log)])
    assert answer.code == 4
    assert "not measured" in answer.err


SIMULATED = ["--requests", "40", "--concurrency", "4"]


def test_simulate_has_both_arms_with_intervals_and_the_same_bytes_twice(paceline: Paceline, tmp_path: Path) -> None:
    """A figure that changes from run to run cannot be reviewed."""
    log = str(chat_log(tmp_path / "log.jsonl", answers=20))
    asked = ["simulate", "--traffic", log, *LLAMA, *SIMULATED, "--json", "--out", str(tmp_path / "runs")]
    first, second = paceline(asked), paceline(asked)
    assert first.out == second.out
    said = parsed(first)
    for arm in ("baseline", "speculative"):
        for latency in ("ttft_s", "tpot_s", "chunk_gap_s", "token_gap_s", "e2e_s"):
            assert set(said["arms"][arm][latency]) == {"p50", "p90", "p95", "p99", "mean"}
            assert set(said["arms"][arm][latency]["p99"]) == RATIO
        assert said["arms"][arm]["requests"] == 40
    assert set(said["acceptance"]["segments"]) == {"chat"}
    assert "profile" in said["acceptance_label"]
    gated = paceline(["gate", str(tmp_path / "runs" / "baseline.json"), str(tmp_path / "runs" / "speculative.json"), "--json"])
    assert gated.code in {0, 1, 4}
    verdict = json.loads(gated.out)
    assert {"verdict", "by_concurrency", "findings", "break_even_alpha", "lesson_verdict", "warnings"} <= set(verdict)
    assert verdict["verdict"] == {0: "ship", 1: "keep", 4: "cannot_tell"}[gated.code]


def test_the_real_dumps_of_a_mixture_of_experts_keep_plain_decoding_in_view(paceline: Paceline) -> None:
    """α = .74 passes the textbook's floor, and every step takes 3.66 times as long."""
    dumps = Path(__file__).parent / "data" / "dumps"
    arms = [str(dumps / f"vllm-0.12.0-qwen3-30b-a3b-{arm}.prom") for arm in ("baseline", "eagle3")]
    gated = paceline(["gate", *arms, "--json"])
    verdict = json.loads(gated.out)
    assert verdict["verdict"] != "ship"
    assert round(verdict["alpha"]["value"], 2) == 0.74
    assert verdict["break_even_alpha"]["value"] > verdict["alpha"]["value"]
    assert verdict["lesson_verdict"]["alpha_clears_floor"] is True


def broken(tmp_path: Path) -> dict[str, list[str]]:
    """Bad input by what is wrong with it."""
    files = {
        "empty.jsonl": b"",
        "binary.jsonl": bytes(range(256)) * 8,
        "nan.jsonl": b'{"prompt": "a", "completion": "b", "arrived_at_s": NaN}\n',
        "negative.jsonl": b'{"prompt": "a", "completion": "b", "arrived_at_s": -1}\n',
        "long.jsonl": b'{"prompt": "a", "completion": "' + b"x" * 10_000_000 + b'"}\n',
        "cut.jsonl.gz": gzip.compress(b'{"prompt": "a", "completion": "b"}\n' * 9, mtime=0)[:12],
        "cut.prom": b"vllm:generation_tokens_total 5\nvllm:spec_decode_num_drafts_total{engine=",
        "config.json": b'{"hidden_size": -1}',
        "negative.csv": b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,-5,10\n",
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    there = {name: str(tmp_path / name) for name in files}
    lesson = ["lesson", "--draft-tokens", "5", "--overhead", "0.1"]
    return {
        "nearest model": ["forecast", "--target", "lama-3.3-70b"],
        "nearest GPU": ["forecast", "--gpu", "h10"],
        "acceptance above 1": [*lesson, "--alpha", "70"],
        "acceptance NaN": [*lesson, "--alpha", "nan"],
        "rising survival": ["forecast", "--survival", ".5,.6,.4"],
        "survival of another length": ["forecast", "--survival", ".5,.4"],
        "no drafts": ["forecast", "--draft-tokens", "0"],
        "acceptance length above K + 1": ["forecast", "--acceptance-length", "9"],
        "draft vocabulary above the target's": ["memory", *LLAMA, "--draft-vocab", "999999"],
        "draft model unnamed": ["memory", *LLAMA, "--method", "draft-model"],
        "model too large": ["memory", "--target", "llama-3.3-70b", "--gpu", "l4", "--gpus", "1"],
        "empty log": ["replay", there["empty.jsonl"]],
        "binary log": ["replay", there["binary.jsonl"]],
        "NaN in a log": ["replay", there["nan.jsonl"]],
        "negative time": ["replay", there["negative.jsonl"]],
        "10 MB line": ["replay", there["long.jsonl"]],
        "truncated gzip": ["replay", there["cut.jsonl.gz"]],
        "missing log": ["replay", str(tmp_path / "nowhere.jsonl")],
        "folder for a log": ["replay", str(tmp_path)],
        "negative lengths in a trace": ["rollout", "--traffic", there["negative.csv"], "--out", str(tmp_path / "out")],
        "cut dump": ["measure", there["cut.prom"]],
        "missing dump": ["measure", "--after", str(tmp_path / "nowhere.prom")],
        "impossible config.json": ["forecast", "--target", there["config.json"]],
        "unknown metric": ["gate", there["cut.prom"], there["cut.prom"], "--claim", "tpot_p98.ratio <= 1"],
        "unknown version": ["config", "--engine-version", "latest"],
        "segment that is not there": ["simulate", "--segment-alpha", "poetry:.5"],
    }


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("nearest model", "Llama-3.3-70B"),
        ("nearest GPU", "h100"),
        ("acceptance above 1", "not between 0 and 1"),
        ("acceptance NaN", "finite"),
        ("rising survival", "survival rises"),
        ("survival of another length", "--draft-tokens is 3"),
        ("no drafts", "from 1 on"),
        ("acceptance length above K + 1", "K + 1 = 4"),
        ("draft vocabulary above the target's", "128256"),
        ("draft model unnamed", "--draft"),
        ("model too large", "leaves nothing for the KV cache; take --"),
        ("empty log", "empty"),
        ("binary log", "binary"),
        ("NaN in a log", "NaN"),
        ("negative time", "arrived_at_s"),
        ("10 MB line", "long"),
        ("truncated gzip", "end-of-stream"),
        ("missing log", "nowhere.jsonl"),
        ("folder for a log", "directory"),
        ("negative lengths in a trace", "count of tokens"),
        ("cut dump", "cut off"),
        ("missing dump", "nowhere.prom"),
        ("impossible config.json", "hidden_size"),
        ("unknown metric", "tpot_p99.ratio"),
        ("unknown version", "0.32.0"),
        ("segment that is not there", "poetry"),
    ],
)
def test_bad_input_ends_with_code_2_one_clear_line_and_no_traceback(paceline: Paceline, tmp_path: Path, what: str, told: str) -> None:
    """A traceback tells a user nothing, and a wrong figure from bad input tells a lie."""
    answer = paceline(broken(tmp_path)[what])
    assert answer.code == 2, answer.out + answer.err
    assert told.casefold() in answer.err.casefold(), answer.err
    assert "Traceback" not in answer.err
    assert answer.out == ""


def test_a_hostile_name_cannot_steer_the_terminal(paceline: Paceline, tmp_path: Path) -> None:
    """A log of somebody else's making is shown on our user's screen."""
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps({"prompt": "a", "completion": "b c d b c d", "segment": "x\u001b[2Jy"}) + "\n", encoding="utf-8")
    answer = paceline(["replay", str(log)])
    assert "\u001b" not in answer.out + answer.err
    assert "\u001b" not in paceline(["forecast", "--target", "\u001b[31mllama"]).err


def test_two_points_of_an_own_server_calibrate_the_forecast(paceline: Paceline, tmp_path: Path) -> None:
    """The forecast then passes through them, says its fit error, and warns where nobody measured."""
    points = tmp_path / "points.csv"
    points.write_text("concurrency,plain_step_s,speculative_step_s\n1,0.0071,0.0105\n32,0.0085,0.0130\n", encoding="utf-8")
    asked = ["forecast", "--target", "llama-3.1-8b", "--gpu", "h100", "--gpus", "1", "--dtype", "bf16", "--alpha", ".5"]
    answer = json.loads(paceline([*asked, "--concurrency", "1,32,64", "--calibrate", str(points), "--json"]).out)
    first, second, third = answer["rows"]
    assert first["speculative_step_s"] == pytest.approx(0.0105, rel=0.03)
    assert second["step_time_ratio"]["value"] == pytest.approx(0.0130 / 0.0085, rel=0.05)
    assert second["step_time_ratio"]["low"] < 0.0130 / 0.0085 < second["step_time_ratio"]["high"]
    assert (second["warnings"], len(third["warnings"])) == ([], 1)
    assert answer["calibration"]["n"] == 2
    text = paceline([*asked, "--concurrency", "64", "--calibrate", str(points)]).out
    assert "calibrated on 2 points" in text
    assert "! at 64 in flight: concurrency 64 lies outside the calibrated 1 to 32" in text
    points.write_text("concurrency,plain_step_s\n1,0.0071\n", encoding="utf-8")
    assert paceline([*asked, "--calibrate", str(points)]).code == 2


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ("concurrency,step_time_ratio\n8,1.2\n8,3\n", "contradict each other"),
        ("concurrency,step_time_ratio\n1,0.01\n8,0.01\n", "contradict each other"),
        ("concurrency,step_time_ratio\n1,1000\n8,1000\n", "contradict each other"),
        ("concurrency,plain_step_s,speculative_step_s\n1,7.1,10.5\n32,8.5,13\n", "seconds given as milliseconds"),
    ],
)
def test_points_that_no_server_shows_are_refused(paceline: Paceline, tmp_path: Path, points: str, said: str) -> None:
    """A fit through nonsense would be printed with a narrow range."""
    (tmp_path / "points.csv").write_text(points, encoding="utf-8")
    asked = ["forecast", "--target", "llama-3.1-8b", "--gpus", "1", "--dtype", "bf16", "--alpha", ".5"]
    answer = paceline([*asked, "--calibrate", str(tmp_path / "points.csv")])
    assert answer.code == 2
    assert said in answer.err


def test_a_calibration_says_what_its_points_do_not_tell(paceline: Paceline, tmp_path: Path) -> None:
    """Plain steps say nothing of drafting, and points that lie apart are no agreement."""
    asked = ["forecast", "--target", "llama-3.1-8b", "--gpus", "1", "--dtype", "bf16", "--alpha", ".5", "--calibrate"]
    plain, apart = tmp_path / "plain.csv", tmp_path / "apart.csv"
    plain.write_text("concurrency,plain_step_s\n1,0.007\n32,0.008\n", encoding="utf-8")
    apart.write_text("concurrency,step_time_ratio\n1,2.0\n32,2.5\n", encoding="utf-8")
    text = paceline([*asked, str(plain)]).out
    assert "do not tell seconds per speculative step and scale of draft passes: kept" in text
    assert "no point has both arms" in text
    assert "the points disagree" in paceline([*asked, str(apart)]).out
    assert json.loads(paceline([*asked, str(plain), str(apart), "--json"]).out)["calibration"]["n"] == 4


def test_an_engine_family_brings_its_fitted_triple(paceline: Paceline) -> None:
    """Without measurements of one's own, published ones of the same engine come nearest."""
    asked = [
        "forecast",
        "--target",
        "deepseek-v3",
        "--gpu",
        "h200",
        "--gpus",
        "8",
        "--method",
        "mtp",
        "--alpha",
        ".6",
        "--concurrency",
        "8",
    ]
    assert json.loads(paceline([*asked, "--engine", "vllm", "--json"]).out)["calibration"]["n"] > 10
    assert paceline([*asked, "--engine", "vlm"]).code == 2


def test_a_reader_that_goes_away_does_not_change_the_answer(paceline: Paceline) -> None:
    """`gate … | head` in a script would ship whatever was asked."""
    dumps = Path(__file__).parent / "data" / "dumps"
    arguments = ["gate", *(str(dumps / f"vllm-0.12.0-qwen3-30b-a3b-{arm}.prom") for arm in ("baseline", "eagle3"))]
    code = paceline(arguments).code
    command = [sys.executable, "-m", "paceline.cli.main", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, complaint = process.communicate(timeout=120)
    assert process.returncode == code
    assert complaint == b""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437"])
def test_a_terminal_that_cannot_show_greek_gets_an_escape(encoding: str) -> None:
    """A crash at the first α ends with a code that a script reads as no."""
    shown = BytesIO()
    terminal = TextIOWrapper(shown, encoding=encoding, write_through=True)
    with redirect_stdout(terminal):
        code = main(["lesson", "--alpha", "0.7", "--draft-tokens", "5", "--overhead", "0.1"])
    assert code == 0
    assert b"4.50" in shown.getvalue()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["replay", "demo", "--seed", "-1"], "whole number"),
        (["rollout", "--out", ""], "no place"),
        (["simulate", "--max-requests", "1000000000"], "max_requests"),
        (["simulate", "--token-budget", "99999999999999999999"], "--token-budget"),
        (["generate", "--target", "x", "--threads", "5000"], "'5000' is above 4096"),
        (["train-eagle3", "log", "--target", "x", "--out", "y", "--passes", "257"], "'257' is above 256"),
        (["forecast", "--draft-tokens", "10000000"], "256"),
        (["forecast", "--tree", "3,1,1", "--acceptance-length", "2"], "cannot reach depth"),
        (["gate", "a", "b", "--confidence", "1e-300"], "confidence"),
        (["measure", "DUMP", "--out", "/dev/null"], "something other than a file"),
    ],
)
def test_what_no_server_has_is_refused_before_anything_is_done(arguments: list[str], told: str, paceline: Paceline) -> None:
    """A machine that runs out of memory, or a device replaced by a file, is a high price for a typing error."""
    dump = str(Path(__file__).parent / "data" / "dumps" / "vllm-0.12.0-qwen3-30b-a3b-eagle3.prom")
    answer = paceline([dump if each == "DUMP" else each for each in arguments])
    assert answer.code == 2, answer.out + answer.err
    assert told in answer.err


def test_outputs_longer_than_the_cache_are_refused_without_room_for_them(paceline: Paceline, tmp_path: Path) -> None:
    """Three rows of a broken trace asked for more memory than any machine has."""
    trace = tmp_path / "trace.csv"
    rows = "".join(f"2023-11-16 18:17:0{i}.0000000,100,{tokens}\n" for i, tokens in enumerate((20, 999999999, 30)))
    trace.write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}", encoding="utf-8")
    said = parsed(paceline(["simulate", "--traffic", str(trace), "--own-times", *LLAMA, "--json"]))
    assert said["arms"]["baseline"]["failed"] == 1


def test_a_calibration_run_of_another_target_is_refused(paceline: Paceline, tmp_path: Path) -> None:
    """Step times of a small mixture of experts make a 70B look twice as fast."""
    log = str(chat_log(tmp_path / "log.jsonl", answers=20))
    small = ["simulate", "--traffic", log, "--target", "llama-3.1-8b", "--gpu", "h100", "--gpus", "1", "--dtype", "bf16", *SIMULATED]
    assert paceline([*small, "--out", str(tmp_path / "runs")]).code == 0
    files = [part for arm in ("baseline", "speculative") for part in ("--calibrate", str(tmp_path / "runs" / f"{arm}.json"))]
    answer = paceline(["forecast", *LLAMA, *files])
    assert answer.code == 2
    assert "Llama-3.1-8B" in answer.err


def test_a_claim_on_goodput_is_judged_on_runs_that_state_a_promise(paceline: Paceline, tmp_path: Path) -> None:
    """Speed that users were not promised is no reason to ship, and a model asked of a run file picks nothing."""
    log = str(chat_log(tmp_path / "log.jsonl", answers=20))
    asked = ["simulate", "--traffic", log, *LLAMA, *SIMULATED, "--slo", "ttft=2s,tpot=50ms", "--out", str(tmp_path / "runs")]
    assert paceline(asked).code == 0
    arms = [str(tmp_path / "runs" / f"{arm}.json") for arm in ("baseline", "speculative")]
    answer = paceline(["gate", *arms, "--claim", "goodput.ratio >= 0.5"])
    assert answer.code == 0, answer.out
    assert "goodput.ratio" in answer.out
    said = paceline(["measure", arms[0], "--model", "x"])
    assert said.code == 2
    assert "leave it out" in said.err


def test_a_folder_of_runs_is_measured_one_run_at_a_time(paceline: Paceline, tmp_path: Path) -> None:
    """What gate reads, measure reads: an error of the machine for a folder sends its owner looking for a broken disk."""
    out = str(tmp_path / "out")
    assert paceline(["simulate", *LLAMA, "--requests", "20", "--concurrency", "2", "--out", out]).code == 0
    both = paceline(["measure", out])
    assert both.code == 2
    assert "'out' holds 2 runs; ask for one as out#LABEL: 'baseline' (2 in flight, baseline)" in both.err
    assert "simulate, speculative arm" in paceline(["measure", f"{out}#speculative"]).out
    assert "leave it out" in paceline(["measure", out, "--model", "m"]).err


def test_the_header_says_where_the_dtype_is_from(paceline: Paceline, tmp_path: Path) -> None:
    """fp8 that nobody asked for halves the weights of a bf16 checkpoint in silence."""
    shape = {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 128256}
    (tmp_path / "config.json").write_text(json.dumps(shape), encoding="utf-8")
    asked = ["memory", "--gpus", "1", "--target"]
    assert f"{tmp_path.name} bf16 (as its config.json states) on 1 h100" in paceline([*asked, str(tmp_path)]).out
    assert "Llama-3.1-8B fp8 (the default) on 1 h100" in paceline([*asked, "llama-3.1-8b"]).out
    assert "Llama-3.1-8B bf16 on 1 h100" in paceline([*asked, "llama-3.1-8b", "--dtype", "bf16"]).out
    made = parsed(paceline([*asked, str(tmp_path), "--json"]))["provenance"]
    assert made["arguments"]["dtype"] == "bf16"
    assert list(made["inputs"]) == [f"{tmp_path.name}/config.json"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["simulate", "--concurency", "3"], "unknown option --concurency; nearest: --concurrency (see paceline simulate --help)"),
        (["diagnose", "--baseline", "x"], "unknown option --baseline; nearest: --baseline-answers, --seed (see paceline diagnose --help)"),
        (["sweep", "--zzz=1"], "unknown option --zzz (see paceline sweep --help)"),
        (["gate", "a", "b", "c"], "unknown argument c (see paceline gate --help)"),
    ],
)
def test_what_no_option_takes_is_told_with_the_nearest_that_the_verb_has(words: list[str], told: str, paceline: Paceline) -> None:
    """The whole command line's help names no option, so whoever mistyped one finds nothing there."""
    answer = paceline(words)
    assert (answer.code, told in answer.err) == (2, True), answer.err


def test_every_verb_that_prices_steps_takes_a_calibration(paceline: Paceline, tmp_path: Path) -> None:
    """A forecast calibrated on one's server beside a simulation that is not are two servers, and nobody sees it."""
    points = tmp_path / "points.csv"
    points.write_text("concurrency,plain_step_s,speculative_step_s\n1,0.030,0.040\n8,0.031,0.042\n", encoding="utf-8")
    small = ["--target", "llama-3.1-8b", "--dtype", "bf16", "--gpus", "1", "--alpha", "0.5", "--requests", "20", "--concurrency", "8"]
    plain, slower = (parsed(paceline(["simulate", *small, *more, "--json"])) for more in ([], ["--calibrate", str(points)]))
    step_s = [each["arms"]["baseline"]["step_s"] for each in (plain, slower)]
    assert step_s[1] > 1.2 * step_s[0]
    assert (plain["calibration"], slower["calibration"]["n"]) == (None, 2)
    grid = ["sweep", *small[:6], "--alphas", ".5", "--draft-lengths", "3", "--concurrencies", "8", "--contexts", "700", "--workers", "1"]
    swept = [parsed(paceline([*grid, *more, "--json"])) for more in ([], ["--engine", "vllm"])]
    assert swept[0]["points"][0]["step_time_ratio"] != swept[1]["points"][0]["step_time_ratio"]
    assert "calibrated on " in paceline([*grid, "--engine", "vllm"]).out
