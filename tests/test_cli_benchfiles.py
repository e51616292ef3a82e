"""The verbs on other tools' files, as they are typed."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.benchfiles import COMPLETIONS, FOLDER, MOCK, SUMMARY_ONLY, changed, nothing, updated
from tests.conftest import Answer

Paceline = Callable[[Sequence[str]], Answer]
SPEC_KEYS = ("num_drafts", "draft_tokens", "accepted_tokens", "acceptance_rate", "acceptance_length", "per_position_acceptance_rates")


def plain(document: dict[str, Any]) -> None:
    """The same load without drafts: 20 ms per token, one token per message."""
    for key in SPEC_KEYS:
        del document[f"spec_decode_{key}"]
    document["itls"] = [[0.02] * 63 for _ in document["itls"]]


def test_measure_says_what_a_benchmark_file_accepted_and_hands_it_on(paceline: Paceline, tmp_path: Path) -> None:
    """Whoever has a load-tester's file and no server any more."""
    profile, run = tmp_path / "speculation_profile.json", tmp_path / "run.json"
    answer = paceline(["measure", str(COMPLETIONS), "--json", "--profile-out", str(profile), "--out", str(run)])
    assert answer.code == 0, answer.err
    said = json.loads(answer.out)
    assert (said["arm"], said["source"]) == ("speculative", "vllm bench serve")
    assert said["acceptance"]["alpha"]["value"] == pytest.approx(93 / 104)
    assert said["summaries"]["tpot_s"]["value"] == pytest.approx(0.06559389706453683)
    assert "server_counters" in {each["code"] for each in said["warnings"]}
    assert json.loads(profile.read_text(encoding="utf-8"))["measured"] is True
    again = paceline(["measure", str(run), "--json"])
    assert json.loads(again.out)["acceptance"] == said["acceptance"]
    assert "time per output token (p99)" in paceline(["measure", str(COMPLETIONS)]).out


def test_measure_takes_the_arm_where_the_file_does_not_say_it(paceline: Paceline) -> None:
    """Whoever knows what the file leaves out."""
    said = json.loads(paceline(["measure", str(SUMMARY_ONLY), "--json"]).out)
    assert (said["arm"], said["warnings"][0]["code"]) == ("baseline", "arm_assumed")
    said = json.loads(paceline(["measure", str(SUMMARY_ONLY), "--json", "--arm", "speculative"]).out)
    assert (said["arm"], said["warnings"]) == ("speculative", [])
    answer = paceline(["measure", str(COMPLETIONS), "--arm", "baseline"])
    assert answer.code == 2
    assert "says that it is the speculative arm" in answer.err


def test_measure_refuses_a_profile_of_nothing(paceline: Paceline, tmp_path: Path) -> None:
    """Whoever asks for a profile of a plain run: no evidence, and no file."""
    answer = paceline(["measure", str(SUMMARY_ONLY), "--profile-out", str(tmp_path / "p.json")])
    assert answer.code == 4
    assert not (tmp_path / "p.json").exists()


def test_gate_decides_on_two_benchmark_files(paceline: Paceline, tmp_path: Path) -> None:
    """Whoever measured both arms with vllm bench: pace per request decides, 20 ms against 9.16 ms."""
    base = changed(MOCK, tmp_path, plain)
    answer = paceline(["gate", str(base), str(MOCK), "--json", "--claim", "speedup >= 1.05", "--claim", "chunk_gap_p50.ratio <= 1.2"])
    said = json.loads(answer.out)
    assert answer.code == 0, answer.err
    speedup, gap = said["findings"]
    assert speedup["estimate"]["value"] == pytest.approx(20 / 9.158159740079798)
    assert speedup["estimate"]["low"] > 1.8
    assert gap["holds"] == "yes"
    assert said["break_even_alpha"]["value"] == pytest.approx((0.023021 / 0.02 - 1) / 3, rel=0.02)


def test_gate_on_printed_results_ships_and_says_what_its_intervals_rest_on(paceline: Paceline) -> None:
    """Whoever has only the console: α 0.20 is above the break-even of 0.088 and 1.19 times as fast over 80 requests."""
    arms = [str(FOLDER / "vllm-text-baseline.log"), str(FOLDER / "vllm-text-k2.log")]
    answer = paceline(["gate", *arms, "--json"])
    said = json.loads(answer.out)
    assert (answer.code, said["verdict"]) == (0, "ship")
    assert {"intervals_from_totals", "cold_server"} <= {each["code"] for each in said["warnings"]}
    assert "not felt" in said["findings"][2]["why"]
    assert "is not felt" in paceline(["gate", *arms]).out.splitlines()[0]
    assert said["findings"][0]["estimate"]["value"] == pytest.approx(7.03 / 5.90)
    assert said["break_even_alpha"]["value"] == pytest.approx((8.26 / 7.03 - 1) / 2)


def test_gate_pairs_the_runs_of_two_sweeps_by_load(paceline: Paceline, tmp_path: Path) -> None:
    """Whoever swept concurrency in both arms: each load is compared with its own, the largest decides."""
    for arm, change in (("plain", plain), ("drafts", nothing)):
        folder = tmp_path / arm
        folder.mkdir()
        for most in (2, 4):
            arm_file = changed(MOCK, folder, change, name=f"c{most}.json")
            changed(arm_file, folder, updated(max_concurrency=most), name=arm_file.name)
    asked = ["gate", str(tmp_path / "plain"), str(tmp_path / "drafts"), "--claim", "speedup >= 1.05"]
    said = json.loads(paceline([*asked, "--json"]).out)
    assert [each["concurrency"] for each in said["by_concurrency"]] == [2, 4]
    assert said["verdict"] == "ship"
    assert paceline(asked).out.count("speedup >= 1.05") >= 2
    changed(tmp_path / "plain" / "c2.json", tmp_path / "plain", updated(date="x"), name="again.json")
    answer = paceline(asked)
    assert answer.code == 2
    assert "2 plain and 1 speculative runs are of 2 in flight" in answer.err


def test_plan_takes_benchmark_files(paceline: Paceline, tmp_path: Path) -> None:
    """Whoever measured elsewhere and plans here."""
    base = changed(MOCK, tmp_path, plain)
    target = ["--target", "llama-3.1-8b", "--gpu", "h100", "--method", "eagle3", "--claim", "speedup >= 1.05"]
    answer = paceline(["plan", str(base), str(MOCK), *target])
    assert answer.code == 0, answer.err
    assert "ship" in answer.out.lower()


def test_a_file_with_several_runs_is_asked_by_label(paceline: Paceline) -> None:
    """Whoever has a table of runs: the message lists them, `#` picks one of each arm."""
    table = FOLDER / "llama-1080ti.json"
    answer = paceline(["measure", str(table)])
    assert answer.code == 2
    assert "#LABEL: 'cuda/baseline' (1 in flight, baseline)" in answer.err
    said = json.loads(paceline(["gate", f"{table}#cuda/baseline", f"{table}#cuda/draft_0_5b", "--json"]).out)
    assert said["findings"][0]["estimate"]["value"] == pytest.approx(1.01, abs=0.5)
    assert paceline(["measure", f"{table}#cuda/mtp"]).code == 2


def test_measure_asks_for_one_of_several_runs_by_its_label(paceline: Paceline) -> None:
    """Whoever follows the refusal's own advice: FILE#LABEL."""
    several = FOLDER / "guidellm-0.8.0-two-rates.json"
    refused = paceline(["measure", str(several)])
    assert "#LABEL" in refused.err
    label = refused.err.partition("#LABEL: '")[2].partition("'")[0]
    answer = paceline(["measure", f"{several}#{label}", "--json"])
    assert answer.code == 0, answer.err


def test_gate_takes_no_speculative_run_for_the_baseline(paceline: Paceline) -> None:
    """Whoever gives one file twice: a run that merely leaves acceptance out would be its own baseline."""
    table = FOLDER / "specforge-table.json"
    label = next(each for each in paceline(["measure", str(table)]).err.split("'") if each.endswith("speculative"))
    answer = paceline(["gate", f"{table}#{label}", f"{table}#{label}"])
    assert answer.code == 2, answer.out
