"""From pairs of runs, just made or from files, to verdicts and a plan."""

from dataclasses import replace
from pathlib import Path

import pytest

from paceline.decide.claims import parse_claim
from paceline.decide.gate import DEFAULT_POLICY
from paceline.errors import BadInputError, NoEvidenceError
from paceline.files.runfile import write_run
from paceline.jobs.launch import launch_commands
from paceline.jobs.planning import DEFAULT_SPREAD, Circumstances, as_measured, compared, need_same, output_shares, planned, read_pairs
from paceline.jobs.scenario import scenario
from paceline.plan import Plan
from paceline.report.page import Comparison
from paceline.run import Arm, Run
from paceline.speculation.method import Method
from paceline.verdict import Decision
from tests.strategies_runs import pair, run, summaries_only
from tests.test_jobs_scenario import ASKED, VERSION

SCENARIO = scenario(ASKED)
WHERE = Circumstances(
    scenario=SCENARIO,
    commands=launch_commands(ASKED, SCENARIO, VERSION, ngram=(2, 4), limits={}),
    engine="vllm 0.32.0",
    shares={"chat": 0.75, "code": 0.25},
    requests_per_s=None,
)


def comparison(concurrency: int, *, step_s: float = 0.012, n: int = 60) -> Comparison:
    """A comparison of hand-made arms."""
    return compared(*pair(n=n, step_s=step_s, concurrency=concurrency), policy=DEFAULT_POLICY, seed=1)


def plan(*comparisons: Comparison) -> Plan:
    """The plan for them."""
    return planned(WHERE, comparisons, policy=DEFAULT_POLICY)


def write_pair(folder: Path, name: str, arms: tuple[Run, Run]) -> None:
    """Both arms' files."""
    folder.mkdir(parents=True, exist_ok=True)
    for each in arms:
        write_run(each, folder / f"{name}{each.arm.value}.json")


def test_a_points_verdict_does_not_depend_on_the_others() -> None:
    """Asking for one more concurrency must not move the interval of the one before."""
    arms = pair(n=60, concurrency=8)
    alone = compared(*arms, policy=DEFAULT_POLICY, seed=1)
    compared(*pair(n=60, concurrency=4), policy=DEFAULT_POLICY, seed=1)
    assert compared(*arms, policy=DEFAULT_POLICY, seed=1).verdict == alone.verdict
    assert compared(*arms, policy=DEFAULT_POLICY, seed=2).verdict != alone.verdict
    assert alone.lesson is not None


def test_a_claim_on_a_segment_that_is_not_there_is_refused_with_those_that_are() -> None:
    """A mistyped segment can never be told, and reads as too few requests."""
    typed = replace(DEFAULT_POLICY, claims=(parse_claim("speedup >= 1.05 [chta]"),))
    with pytest.raises(BadInputError, match="unknown segment in a claim 'chta'; nearest: chat"):
        compared(*pair(n=60), policy=typed, seed=1)
    nameless = summaries_only(Arm.BASELINE, step_s=0.02, counts=None), summaries_only(Arm.SPECULATIVE, step_s=0.01, counts=None)
    assert compared(*nameless, policy=typed, seed=1).verdict.decision is Decision.CANNOT_TELL


def test_swapped_arms_are_refused() -> None:
    """The slow arm would ship as the fast one."""
    with pytest.raises(BadInputError):
        compared(*reversed(pair(n=10)), policy=DEFAULT_POLICY, seed=1)


def test_the_largest_concurrency_decides_whatever_the_order() -> None:
    """Batch 1 flatters: drafts pay there and not at 64."""
    small, large = comparison(1), comparison(64, step_s=0.06)
    assert large.verdict.decision is Decision.KEEP
    assert plan(small, large) == plan(large, small)
    assert plan(small, large).title.startswith("Keep plain decoding")
    assert "1, 64 in flight; 64 is production" in plan(small, large).measurement["concurrency"]
    with pytest.raises(NoEvidenceError):
        planned(WHERE, (), policy=DEFAULT_POLICY)


def test_the_plan_takes_over_its_circumstances() -> None:
    """A plan with another server's command is followed on another server."""
    made = plan(comparison(8))
    assert "Llama-3.3-70B" in made.title
    assert f"(vllm {VERSION})" in made.title
    assert "chat 75%, code 25%" in made.measurement["traffic"]
    assert any(WHERE.commands.baseline in act for stage in made.stages for act in stage.do)


def stating(arms: tuple[Run, Run], *commands: str) -> tuple[Run, Run]:
    """Runs that say what they were measured on."""
    told = ({"engine": "llamacpp", "engine_version": "b11434", "server_command": each} for each in commands)
    baseline, speculative = (replace(run, provenance=replace(run.provenance, arguments=each)) for run, each in zip(arms, told, strict=True))
    return baseline, speculative


def test_a_plan_starts_the_servers_that_were_measured() -> None:
    """A rollout of llama-server that says `vllm serve` is followed on a server that nobody measured."""
    arms = pair(n=60, concurrency=8)
    assert as_measured(WHERE, *arms) == WHERE
    where = as_measured(WHERE, *stating(arms, "llama-server -m 'a b.gguf'", "llama-server -m 'a b.gguf' --spec-type ngram-simple"))
    made = planned(where, (comparison(8),), policy=DEFAULT_POLICY)
    assert "(llamacpp b11434)" in made.title
    acts = [act for stage in made.stages for act in stage.do]
    assert "llama-server -m 'a b.gguf' --spec-type ngram-simple" in acts
    assert not [each for each in acts if "vllm serve" in each]
    with pytest.raises(BadInputError, match="is no command"):
        as_measured(WHERE, *stating(arms, "llama-server", "llama-server -m 'a"))


def test_a_ramp_lasts_until_the_traffic_has_brought_its_requests() -> None:
    """One request in a hundred seconds brings no verdict in an hour."""
    slow = planned(replace(WHERE, requests_per_s=0.01), (comparison(8),), policy=DEFAULT_POLICY)
    usual = plan(comparison(8))
    waits = [next(each.min_duration_s for each in made.stages if each.name == "ramp-1") for made in (usual, slow)]
    assert waits[0] == 3600
    assert waits[1] > 100 * waits[0]


def test_without_requests_the_spread_is_the_documented_one() -> None:
    """Two metrics dumps know no request, and a plan needs a sample size all the same."""
    base = summaries_only(Arm.BASELINE, step_s=0.01, counts=None)
    spec = summaries_only(Arm.SPECULATIVE, step_s=0.012, counts=pair(n=4)[1].acceptance)
    made = plan(compared(base, spec, policy=DEFAULT_POLICY, seed=1))
    assert f"spread by {DEFAULT_SPREAD:.2g}" in made.measurement["requests"]


def test_shares_are_of_generated_tokens() -> None:
    """Ten short chats do not outweigh one long report."""
    made = run(Arm.BASELINE, n=2, step_s=0.01, alphas={"code": 0.5, "chat": 0.5})
    tokens = {each.segment: each.output_tokens for each in made.finished}
    assert output_shares(made) == {name: tokens[name] / sum(tokens.values()) for name in ("chat", "code")}
    assert output_shares(replace(made, requests=())) == {"all": 1.0}
    assert output_shares(summaries_only(Arm.BASELINE, step_s=0.1, counts=None)) == {"all": 1.0}


def test_two_files_are_a_pair(tmp_path: Path) -> None:
    """The order is that of the question: baseline first."""
    write_pair(tmp_path, "", pair(n=4))
    ((base, spec),) = read_pairs((tmp_path / "baseline.json", tmp_path / "speculative.json"))
    assert (base.arm, spec.arm) == (Arm.BASELINE, Arm.SPECULATIVE)


def test_a_folders_pairs_come_by_concurrency(tmp_path: Path) -> None:
    """10,000 in flight comes after 2,000, and the last pair is production's."""
    for concurrency in (2000, 10000, 8):
        write_pair(tmp_path / "out" / "runs", f"c{concurrency:04d}-", pair(n=4, concurrency=concurrency))
    assert [base.load.concurrency for base, _ in read_pairs((tmp_path / "out",))] == [8, 2000, 10000]
    assert [base.load.concurrency for base, _ in read_pairs((tmp_path / "out" / "runs",))] == [8, 2000, 10000]


def test_what_is_no_pair_is_refused_with_what_is_missing(tmp_path: Path) -> None:
    """A plan from one arm would compare a server with nothing."""
    write_pair(tmp_path / "runs", "c0008-", pair(n=4))
    for paths in ((), (tmp_path / "runs" / "c0008-baseline.json",)):
        with pytest.raises(BadInputError, match="give BASELINE and SPECULATIVE, or the one folder"):
            read_pairs(paths)
    (tmp_path / "runs" / "c0008-speculative.json").unlink()
    with pytest.raises(BadInputError, match=r"'c0008-speculative.json' is missing beside its baseline"):
        read_pairs((tmp_path,))
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInputError, match=r"holds no run file whose name ends in baseline.json"):
        read_pairs((tmp_path / "empty",))


def test_a_plan_for_other_hardware_than_the_runs_is_refused() -> None:
    """The verdict of two GPUs above the launch command of eight is nobody's verdict."""
    made = pair(n=20, step_s=0.012, concurrency=4)[0]
    told = replace(made, provenance=replace(made.provenance, arguments={"hardware": "2 h100, fp8"}))
    need_same(((told, told),), {"hardware": "2 h100, fp8", "target": "any"}, SCENARIO.speculation)
    with pytest.raises(BadInputError, match="2 h100"):
        need_same(((told, told),), {"hardware": "8 h100, fp8"}, SCENARIO.speculation)


def test_a_plan_for_another_draft_than_the_runs_is_refused() -> None:
    """An n-gram plan under the verdict of an EAGLE-3 run was measured by nobody."""
    arms = pair(n=20, step_s=0.012, concurrency=4)
    own = arms[1].speculation
    assert own is not None
    need_same((arms,), {}, own)
    with pytest.raises(BadInputError, match="ngram"):
        need_same((arms,), {}, replace(own, method=Method.NGRAM))
