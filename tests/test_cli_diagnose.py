"""`paceline diagnose`: which files it takes, what it prints, and what it refuses."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from paceline.decide.diagnosis.cause import CODES
from paceline.files.runfile import write_run
from paceline.run import Arm, Load, Run, Summary
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Method
from tests.conftest import Answer
from tests.strategies_runs import pair, run, summaries_only

Paceline = Callable[[Sequence[str]], Answer]
DATA = Path(__file__).parent / "data"
DUMPS = DATA / "dumps"
MOE = [str(DUMPS / f"vllm-0.12.0-qwen3-30b-a3b-{arm}.prom") for arm in ("baseline", "eagle3")]
LOG = str(DATA / "cases" / "61-pos0-only" / "input.txt")


def told(base: Run, **arguments: str) -> Run:
    return replace(base, provenance=replace(base.provenance, arguments=arguments))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A load-test's folder of two loads: at 8 it pays, at 64 steps take three times as long; half of the answers differ at 8."""
    for load, step_s in ((8, 0.012), (64, 0.034)):
        for each in pair(n=48, step_s=step_s, concurrency=load, alphas={"chat": 0.7}):
            (tmp_path / "bench" / "runs").mkdir(parents=True, exist_ok=True)
            write_run(told(each, temperature="0"), tmp_path / "bench" / "runs" / f"c{load:04d}-{each.arm.value}.json")
    answers = tmp_path / "bench" / "answers"
    answers.mkdir()
    for who, changed in (("baseline", 0), ("speculative", 24), ("repeat", 0)):
        lines = [json.dumps({"id": f"r{i}", "text": f"{'other' if i < changed else 'the same'} answer {i}"}) + "\n" for i in range(48)]
        (answers / f"c0008-{who}.jsonl").write_text("".join(lines), encoding="utf-8")
    return tmp_path / "bench"


def test_a_folder_is_diagnosed_load_by_load_and_the_largest_leads(folder: Path, paceline: Paceline) -> None:
    """Whoever measured several loads asks about production's, and wants to see the others."""
    answer = paceline(["diagnose", str(folder), "--json"])
    assert answer.code == 0, answer.err
    document = json.loads(answer.out)
    assert document["schema"] == "paceline.diagnose/1"
    assert [each["concurrency"] for each in document["by_concurrency"]] == [8, 64]
    assert document["concurrency"] == 64
    assert document["causes"] == document["by_concurrency"][1]["causes"]
    codes = [each["code"] for each in document["causes"]]
    assert codes[:2] == ["verification_cost", "large_batch"]
    assert [each["rank"] for each in document["causes"]] == list(range(1, len(codes) + 1))
    assert set(document["causes"][0]) == {"code", "rank", "message", "figures", "remedy", "confidence"}
    answers = document["by_concurrency"][0]["losslessness"]
    assert (answers["lossless"], answers["divergence"]["share"]["value"], answers["noise_floor"]["share"]["value"]) == ("no", 0.5, 0)
    assert document["losslessness"] is None
    text = paceline(["diagnose", str(folder)]).out
    assert "8 in flight:" in text
    assert "lossless: no; 50.0% of 48 answers differ against 0.0% of 48 when the baseline is asked twice: more than noise" in text
    assert "answers that differ do so first after 0 characters (median)" in text
    assert "1. a step with drafts takes too long for what it yields [verification_cost, " in text


def test_the_same_inputs_give_the_same_bytes(folder: Path, paceline: Paceline) -> None:
    """A diagnosis that changes when asked again is believed neither time."""
    assert paceline(["diagnose", str(folder), "--json"]).out == paceline(["diagnose", str(folder), "--json"]).out


def test_answers_beside_two_run_files_are_found_by_diagnose_and_gate(folder: Path, paceline: Paceline) -> None:
    """Nobody names three files that the folder names."""
    runs = [str(folder / "runs" / f"c0008-{arm}.json") for arm in ("baseline", "speculative")]
    document = json.loads(paceline(["diagnose", *runs, "--json"]).out)
    assert "answers_differ" in [each["code"] for each in document["causes"]]
    verdict = paceline(["gate", *runs, "--json"])
    assert json.loads(verdict.out)["losslessness"] == document["losslessness"]
    assert "lossless: no" in paceline(["gate", *runs]).out
    alone = json.loads(paceline(["diagnose", runs[1], "--json"]).out)
    assert alone["losslessness"] is None
    assert "degenerate_answers" not in [each["code"] for each in alone["not_checked"]]


def test_a_speculative_run_alone_is_diagnosed_as_far_as_it_goes(paceline: Paceline) -> None:
    """The first thing anybody has is a log with bad figures in it."""
    answer = paceline(["diagnose", LOG])
    assert answer.code == 0, answer.err
    assert "draft_faulty_after_first, sure" in answer.out
    assert "verification_cost: needs a baseline run under the same load" in answer.out
    assert "No cause was found" in paceline(["diagnose", str(DUMPS / "vllm-0.12.0-llama-3.1-8b-eagle3.prom")]).out


def test_target_and_hardware_replace_the_usual_cost(tmp_path: Path, paceline: Paceline) -> None:
    """What is dear for a small dense model is what a mixture of experts costs."""
    files = [str(tmp_path / f"{arm}.json") for arm in ("baseline", "speculative")]
    for each, file in zip(pair(n=40, step_s=0.034, alphas={"chat": 0.6}), files, strict=True):
        write_run(each, Path(file))
    plain = json.loads(paceline(["diagnose", *files, "--json"]).out)
    target = ["--target", "llama-3.3-70b", "--gpu", "h100", "--gpus", "4"]
    known = json.loads(paceline(["diagnose", *files, *target, "--json"]).out)
    codes = [each["code"] for each in known["causes"]]
    assert {"slower_than_forecast", "tensor_parallel_verification"} <= set(codes)
    assert "moe_verification" not in codes + [each["code"] for each in known["not_checked"]]
    expected = {each["code"]: each["figures"] for each in known["causes"]}["slower_than_forecast"]["forecast_ratio"]
    assert (
        1 < expected < 1.6 == pytest.approx({each["code"]: each["figures"] for each in plain["causes"]}["verification_cost"]["usual_ratio"])
    )
    silent = json.loads(paceline(["diagnose", *MOE, *target, "--json"]).out)
    assert "slower_than_forecast" in [each["code"] for each in silent["not_checked"]]
    lookup = run(Arm.SPECULATIVE, n=40, step_s=0.034, alphas={"chat": 0.6})
    assert lookup.speculation is not None
    counted = AcceptanceCounts(steps=4000, drafts=1000, drafted_tokens=3000, accepted_tokens=900, accepted_per_position=None)
    how = replace(lookup.speculation, method=Method.NGRAM)
    write_run(replace(lookup, speculation=how, requests=None, acceptance_by_segment={"all": counted}), Path(files[1]))
    assert paceline(["diagnose", *files, *target, "--json"]).code == 0


def test_a_method_may_be_said_where_the_evidence_does_not(paceline: Paceline) -> None:
    """Counters know neither the method nor K."""
    answer = paceline(["diagnose", *MOE, "--method", "eagle3", "--draft-tokens", "3", "--json"])
    assert json.loads(answer.out)["causes"][0]["code"] == "verification_cost"


def test_a_server_that_could_draft_and_did_not_is_a_baseline(tmp_path: Path, paceline: Paceline) -> None:
    """A server with speculation's series and no drafts is the plain arm, if it is given as such."""
    totals = {"tpot_s": Summary(value=0.01, statistic="mean", n=None, low=None, high=None)}
    idle = replace(summaries_only(Arm.SPECULATIVE, step_s=0.01, counts=None, summaries=totals), speculation=None)
    counts = AcceptanceCounts(steps=None, drafts=500, drafted_tokens=1500, accepted_tokens=600, accepted_per_position=None)
    drafted = summaries_only(Arm.SPECULATIVE, step_s=0.03, counts=counts, summaries={})
    for name, each in (("a", idle), ("b", drafted)):
        write_run(each, tmp_path / f"{name}.json")
    document = json.loads(paceline(["diagnose", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--json"]).out)
    assert document["figures"]["step_time_ratio"]["value"] == pytest.approx(3)


def test_several_runs_of_one_file_are_paired_by_load(tmp_path: Path, paceline: Paceline) -> None:
    """A sweep's folder holds one run per load."""
    for arm in (Arm.BASELINE, Arm.SPECULATIVE):
        (tmp_path / arm.value).mkdir()
        for load in (1, 8):
            made = run(arm, n=12, step_s=0.01 if arm is Arm.BASELINE else 0.04, alphas={"chat": 0.5}, concurrency=load)
            write_run(replace(made, load=Load(concurrency=load, rate_per_s=None)), tmp_path / arm.value / f"{load}.json")
    document = json.loads(paceline(["diagnose", str(tmp_path / "baseline"), str(tmp_path / "speculative"), "--json"]).out)
    assert [each["concurrency"] for each in document["by_concurrency"]] == [1, 8]


def test_first_differing_tokens_need_the_tokenizer(folder: Path, tmp_path: Path, paceline: Paceline) -> None:
    """A position in tokens is what log-probabilities are looked up by."""
    tokenizer = DATA / "traffic" / "tokenizer.json"
    file = tokenizer if tokenizer.is_file() else _words_tokenizer(tmp_path / "tokenizer.json")
    document = json.loads(paceline(["diagnose", str(folder), "--tokenizer", str(file), "--json"]).out)
    assert document["by_concurrency"][0]["losslessness"]["divergence"]["first_token"][0] == 0


def _words_tokenizer(file: Path) -> Path:
    vocab = {word: i for i, word in enumerate(("?", "the", "same", "other", "answer", *map(str, range(48))))}
    document: dict[str, object] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "?"},
    }
    file.write_text(json.dumps(document), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([LOG, LOG, LOG], "give BASELINE and SPECULATIVE, SPECULATIVE alone"),
        ([MOE[0]], "run with drafts"),
        ([LOG, "--method", "eagle3"], "--method and --draft-tokens say together"),
        ([LOG, "--gpus", "4"], "give --target too"),
        ([LOG, "--draft", "x"], "--draft does nothing"),
        ([LOG, "--target", "no-such-model"], "no-such-model"),
        ([LOG, "--speculative-answers", LOG], "no answer"),
        (["nowhere.json"], "nowhere.json"),
    ],
)
def test_what_cannot_be_diagnosed_is_refused(arguments: list[str], message: str, paceline: Paceline) -> None:
    """An option without effect is taken for what the answer rests on."""
    answer = paceline(["diagnose", *arguments])
    assert answer.code == 2
    assert message in answer.err


def test_a_method_against_the_evidence_s_own_is_refused(tmp_path: Path, paceline: Paceline) -> None:
    """Whoever types another K than was drafted gets a diagnosis of nothing."""
    write_run(run(Arm.SPECULATIVE, n=12, step_s=0.01, alphas={"chat": 0.5}), tmp_path / "s.json")
    answer = paceline(["diagnose", str(tmp_path / "s.json"), "--method", "eagle3", "--draft-tokens", "5"])
    assert (answer.code, "leave them out" in answer.err) == (2, True)


def test_every_code_is_in_the_reference() -> None:
    """A code in somebody's alert is looked up there."""
    text = (Path(__file__).parent.parent / "docs" / "reference" / "diagnose.md").read_text(encoding="utf-8")
    missing = [code for code, (_, words) in CODES.items() if f"| `{code}` | {words} |" not in text]
    assert not missing
    causes = text.partition("## Losslessness")[0]
    assert causes.count("\n| `") == len(CODES)
