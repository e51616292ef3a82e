"""From run files to a calibrated forecast: what a server does comes back, prefill or not."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paceline.errors import BadInputError
from paceline.files.runfile import write_run
from paceline.forecast.acceptance_model import exactly
from paceline.forecast.engine_cost import EngineCost
from paceline.forecast.speedup import Bound, ForecastRow, Lengths, forecast
from paceline.forecast.step_cost import step_cost
from paceline.hardware import Dtype
from paceline.jobs.calibration import calibrated, calibration_notes, family_calibration
from paceline.jobs.scenario import Asked, Scenario, config_hashes, scenario
from paceline.run import Arm, Load, Run
from paceline.simulate.replica import Drafting, Rejection, Replica
from paceline.simulate.server import simulate
from paceline.simulate.steady import steady
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.method import Method
from paceline.stats.decode_pace import decode_pace
from paceline.workload import Request, Workload

TRUE = EngineCost(overhead_s=0.0006, draft_scale=1.8, efficiency=0.8, arithmetic=1.0)
PROMPT, OUTPUT = 500, 200
TOLERANCE = 0.03


def asked(method: Method = Method.EAGLE3) -> Scenario:
    """Llama-3.1-8B on one H100 in bf16, three drafts."""
    return scenario(
        Asked(
            target="llama-3.1-8b",
            gpu="h100",
            gpus=1,
            dtype=Dtype.BF16,
            utilisation=0.9,
            method=method,
            draft=None,
            draft_tokens=3,
            draft_vocab=None,
            tree=None,
        )
    )


def simulated(found: Scenario, concurrency: int, *, coverage: float = 1.0) -> tuple[Run, Run]:
    """Both arms on a server that behaves like `TRUE`."""
    outputs = np.random.default_rng(3).integers(OUTPUT // 2, OUTPUT * 3 // 2, 150 + 2 * concurrency).tolist()
    requests = tuple(
        Request(id=str(i), arrived_at_s=0.0, prompt_tokens=PROMPT, output_tokens=n, segment="all") for i, n in enumerate(outputs)
    )
    acceptance = Acceptance(survival=(0.6, 0.4, 0.3), coverage=coverage)
    arms = []
    for speculation in (None, found.speculation):
        cost = step_cost(
            target=found.target,
            gpu=found.where.gpu,
            gpus=1,
            dtype=found.where.dtype,
            speculation=speculation,
            draft=found.draft if speculation else None,
            max_tokens=8192,
            max_requests=256,
            engine=TRUE,
        )
        drafting = Drafting(speculation=found.speculation, acceptance={"all": acceptance}, spread=0.3, rejection=Rejection.IN_PASS)
        made = simulate(
            Workload(requests=requests, source="made", seed=1),
            replica=Replica(kv_blocks=40_000, block_tokens=16, max_requests=256, token_budget=8192),
            step_cost=cost,
            drafting=drafting if speculation else None,
            load=Load(concurrency=concurrency, rate_per_s=None),
            seed=1,
        )
        arms.append(steady(made, skip_first=concurrency, skip_last=concurrency))
    return arms[0], arms[1]


def written(folder: Path, *pairs: tuple[Run, Run]) -> list[Path]:
    """Their run files, a folder for each pair."""
    folders = []
    for i, pair in enumerate(pairs):
        folders.append(folder / str(i))
        folders[-1].mkdir()
        for run in pair:
            write_run(run, folders[-1] / f"{run.arm.value}.json")
    return folders


def forecast_at(found: Scenario, files: list[Path], concurrency: int, *, coverage: float = 1.0) -> ForecastRow:
    """The calibrated forecast."""
    context = PROMPT + OUTPUT // 2
    (row,) = forecast(
        target=found.target,
        where=found.where,
        speculation=found.speculation,
        draft=found.draft,
        acceptance=exactly(Acceptance(survival=(0.6, 0.4, 0.3), coverage=coverage)),
        concurrencies=(concurrency,),
        lengths=Lengths(prompt_tokens=PROMPT, output_tokens=OUTPUT, context_tokens=context),
        draft_lengths=(3,),
        utilisation=0.9,
        calibration=calibrated(files, found, context_tokens=context, engine=None),
    )
    return row


def pace_s(run: Run) -> float:
    """Seconds of its steps without prefill."""
    found = decode_pace(run)
    assert found is not None
    assert found.step_s is not None
    return found.step_s


def test_two_simulated_runs_calibrate_a_forecast_that_agrees_with_the_simulator_elsewhere(tmp_path: Path) -> None:
    """Steps that carry prefill took for slow drafts would make ρ 1.65 of 1.37: within 3 % at a concurrency that no run was at."""
    found = asked()
    row = forecast_at(found, written(tmp_path, simulated(found, 2), simulated(found, 16)), 8)
    plain, drafted = simulated(found, 8)
    assert row.plain_step_s == pytest.approx(pace_s(plain), rel=TOLERANCE)
    assert row.speculative_step_s == pytest.approx(pace_s(drafted), rel=TOLERANCE)
    assert row.step_time_ratio.value == pytest.approx(pace_s(drafted) / pace_s(plain), rel=TOLERANCE)


def unclocked(run: Run) -> Run:
    """The run as a log has it that does not say when requests left, so that no step is known to be free of prefill."""
    timings = [replace(each.timing, arrived_at_s=0.0, sent_at_s=0.0) for each in run.requests or ()]
    return replace(run, requests=tuple(replace(each, timing=timing) for each, timing in zip(run.requests or (), timings, strict=True)))


def test_prefill_is_priced_off_where_no_step_is_known_to_be_without(tmp_path: Path) -> None:
    """Steps as they are would put ρ off by more than the tolerance."""
    found = asked()
    pairs = [simulated(found, each) for each in (4, 32)]
    row = forecast_at(found, written(tmp_path, *((unclocked(plain), unclocked(drafted)) for plain, drafted in pairs)), 32)
    plain, drafted = pairs[1]
    truth = pace_s(drafted) / pace_s(plain)
    assert row.step_time_ratio.value == pytest.approx(truth, rel=TOLERANCE)
    assert (drafted.step_seconds or 0) / (plain.step_seconds or 1) > truth * (1 + 1.5 * TOLERANCE)


def test_a_lookup_that_drafts_in_half_of_its_steps_is_calibrated_as_such(tmp_path: Path) -> None:
    """Steps without drafts are no fast drafts."""
    found = asked(Method.NGRAM)
    row = forecast_at(found, written(tmp_path, simulated(found, 2, coverage=0.5), simulated(found, 16, coverage=0.5)), 8, coverage=0.5)
    plain, drafted = simulated(found, 8, coverage=0.5)
    assert row.step_time_ratio.value == pytest.approx(pace_s(drafted) / pace_s(plain), rel=TOLERANCE)


def test_runs_that_are_all_prefill_are_refused(tmp_path: Path) -> None:
    """What is left after pricing would be a difference of two large numbers."""
    plain, drafted = (unclocked(each) for each in simulated(asked(), 96))
    requests = tuple(replace(each, prompt_tokens=20_000) for each in plain.requests or ())
    with pytest.raises(BadInputError, match="of its steps on prefill"):
        calibrated(written(tmp_path, (replace(plain, requests=requests), drafted)), asked(), context_tokens=600, engine=None)


def test_runs_of_another_method_are_refused(tmp_path: Path) -> None:
    """A lookup's step says nothing of a head's."""
    files = written(tmp_path, simulated(asked(Method.NGRAM), 2))
    with pytest.raises(BadInputError, match="method is 'ngram', not 'eagle3'"):
        calibrated(files, asked(), context_tokens=600, engine=None)
    files[0].joinpath(f"{Arm.SPECULATIVE.value}.json").unlink()
    with pytest.raises(BadInputError, match="too few"):
        calibrated(files, asked(), context_tokens=600, engine="vllm")


def test_a_family_has_no_notes() -> None:
    """Its points are not the user's to mend."""
    assert calibration_notes(family_calibration("vllm")) == ()


def test_a_point_that_was_copied_is_one_point(tmp_path: Path) -> None:
    """One measurement given twice passes for a fit of three coefficients."""
    path = tmp_path / "points.csv"
    path.write_text("concurrency,plain_step_s,speculative_step_s\n1,.008,.010\n1,.008,.010\n", encoding="utf-8")
    with pytest.raises(BadInputError, match="1 distinct calibration point is too few"):
        calibrated([path, path], asked(), context_tokens=1000, engine=None)


def test_points_that_contradict_each_other_are_shown_beside_the_fit(tmp_path: Path) -> None:
    """Told only that something is off, nobody finds which of twenty points was given in milliseconds."""
    rows = [f"{B},0.0075,0.0111\n" for B in range(1, 14)] + ["8,7.5,0.0111\n"]
    points = tmp_path / "points.csv"
    points.write_text("concurrency,plain_step_s,speculative_step_s\n" + "".join(rows), encoding="utf-8")
    with pytest.raises(BadInputError, match="contradict each other") as raised:
        calibrated([points], asked(), context_tokens=600, engine=None)
    lines = str(raised.value).splitlines()
    assert re.match(r"  8 in flight, K = 3: plain_step_s 7\.5 given, 0\.00\d+ fitted, speculative_step_s 0\.0111 given, ", lines[1])
    assert lines[-1] == "  and 2 more points"
    assert len(lines) == 14


@pytest.mark.parametrize(("bandwidth", "peak"), [(10e9, 150e9), (20e9, 150e9), (15e9, 1000e9), (300e9, 2e12)])
def test_one_and_eight_in_flight_place_the_crossing_of_a_cpu_between_eight_and_thirty_two(
    bandwidth: float, peak: float, tmp_path: Path
) -> None:
    """On hardware in no table the peaks are guesses; from how many tokens on a step grows is what the points have to say.

    Steps of SmolLM2-135M with an EAGLE-3 head of 2.65 tokens per step, K = 3, in vLLM 0.32.0 on two CPU cores: 42.0 and 84.2 tokens/s
    at 1 in flight, 237.5 and 278.6 at 8, 381.9 and 339.4 at 32: twice as fast, 1.17 times, and 0.89 times.
    """
    hardware = tmp_path / "cpu.toml"
    hardware.write_text(
        f'name = "two cores"\nmemory_bytes = 24e9\nbandwidth_bytes_per_s = {bandwidth}\nflops_per_s = {{ bf16 = {peak} }}\n'
        "roofline_norm = 1.5\n",
        encoding="utf-8",
    )
    config = {"model_type": "llama", "num_hidden_layers": 30, "hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9}
    config |= {"num_key_value_heads": 3, "vocab_size": 49152, "tie_word_embeddings": True}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    typed = Asked(
        target=str(tmp_path),
        gpu=str(hardware),
        gpus=1,
        dtype=Dtype.BF16,
        utilisation=0.9,
        method=Method.EAGLE3,
        draft=None,
        draft_tokens=3,
        draft_vocab=4096,
        tree=None,
    )
    points = tmp_path / "points.csv"
    points.write_text("concurrency,plain_step_s,speculative_step_s\n1,.0238,.0315\n8,.0337,.0761\n", encoding="utf-8")
    found = scenario(typed)
    assert set(config_hashes(typed)) == {f"{tmp_path.name}/config.json", "cpu.toml"}
    rows = forecast(
        target=found.target,
        where=found.where,
        speculation=found.speculation,
        draft=found.draft,
        acceptance=exactly(Acceptance(survival=(0.662, 0.544, 0.442), coverage=1.0)),
        concurrencies=(1, 8, 32),
        lengths=Lengths(prompt_tokens=200, output_tokens=100, context_tokens=250),
        draft_lengths=(3,),
        utilisation=0.9,
        calibration=calibrated([points], found, context_tokens=250, engine=None),
    )
    assert rows[0].speedup.value == pytest.approx(2.0, rel=0.06)
    assert rows[1].speedup.value == pytest.approx(1.17, rel=0.06)
    assert 0.7 < rows[2].speedup.value < 0.9
    assert rows[2].bound is Bound.COMPUTE
