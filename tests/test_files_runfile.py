"""Run files come back as they were written, and nothing else is taken for one."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError, UnknownNameError
from paceline.files.runfile import RUN_SCHEMA, read_run, run_from_json, run_to_json, write_run
from paceline.latency import Detail, Ended, RequestTiming
from paceline.run import Arm, Load, Outcome, RequestRecord, Run, Summary
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Method, Speculation, Tree
from tests.strategies import request_timings
from tests.strategies_runs import pair, provenance, run, summaries_only


def whole() -> Run:
    """A run with something in every field."""
    speculative = pair(n=3)[1]
    return replace(
        speculative,
        speculation=Speculation(method=Method.EAGLE2, draft_tokens=3, tree=Tree(depth=3, topk=2, nodes=6)),
        load=Load(concurrency=None, rate_per_s=1 / 3),
        summaries={"tpot_s": Summary(value=0.1, statistic="mean", n=None, low=0.05, high=0.2)},
    )


def broken(path: tuple[str | int, ...], value: object) -> str:
    """A run file with one value replaced; `...` removes the key."""
    loaded = json.loads(run_to_json(whole()))
    place: Any = loaded
    for each in path[:-1]:
        place = place[each]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return json.dumps(loaded)


def test_a_run_comes_back_equal(tmp_path: Path) -> None:
    """A gate on a file must be the gate on the run that was measured."""
    for each in (
        whole(),
        pair(n=2)[0],
        summaries_only(Arm.BASELINE, step_s=None, counts=None),
        run(Arm.BASELINE, n=0, step_s=0.1, alphas={"a": 1}),
    ):
        write_run(each, tmp_path / "run.json")
        assert read_run(tmp_path / "run.json") == each
    assert [each.name for each in tmp_path.iterdir()] == ["run.json"]


@given(request_timings(), st.floats(allow_nan=False, allow_infinity=False, min_value=0))
@settings(max_examples=40, deadline=None)
def test_every_float_comes_back_bit_for_bit(timing: RequestTiming, step_s: float) -> None:
    """Rounded instants would move percentiles, and the same run would get two verdicts."""
    record = RequestRecord(id="é\n", segment="s", prompt_tokens=1, output_tokens=1, timing=timing, acceptance=None, outcome=Outcome.RUNNING)
    made = replace(whole(), requests=(record,), step_seconds=step_s)
    again = run_from_json(run_to_json(made), name="x")
    assert again == made
    assert again.requests is not None
    assert again.requests[0].timing.chunk_at_s.tobytes() == timing.chunk_at_s.astype(np.float64).tobytes()


def test_schema_and_provenance_stand_first() -> None:
    """Whoever opens the file must see at once what it is and where it comes from."""
    assert list(json.loads(run_to_json(whole())))[:2] == ["schema", "provenance"]
    assert run_to_json(whole()).startswith('{"schema":"paceline.run/1"')
    assert RUN_SCHEMA == "paceline.run/1"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("schema",), "paceline.run/9", "schema 'paceline.run/9' is not"),
        (("stepseconds",), 1.0, r"unknown key in run 'stepseconds'; nearest: .*step_seconds"),
        (("requests", 1, "timing", "chunk_at"), [], r"requests\[1\]\.timing 'chunk_at'; nearest: chunk_at_s"),
        (("load",), ..., "run lacks load"),
        (("arm",), "basline", "nearest: baseline"),
        (("arm",), 3, "arm = 3 is not text"),
        (("load", "concurrency"), True, r"load\.concurrency = True is not a whole number"),
        (("load", "concurrency"), 0, "concurrency 0 is not"),
        (("window_s",), "12", "window_s = '12' is not a finite number"),
        (("window_s",), True, "not a finite number"),
        (("window_s",), 10**400, "not a finite number"),
        (("summaries",), [], r"summaries = \[\] is not an object"),
        (("requests",), {}, r"requests = \{\} is not a list"),
        (("requests", 0, "timing", "chunk_at_s"), [[1.0]], "flat list of numbers"),
        (("requests", 0, "timing", "chunk_at_s"), [[1.0], 2.0], "flat list of numbers"),
        (("requests", 0, "timing", "chunk_at_s"), ["a"], "flat list of numbers"),
        (("requests", 0, "timing", "chunk_tokens"), [1.5], "flat list of whole numbers"),
        (("requests", 0, "timing", "chunk_tokens"), [True, 2], "flat list of whole numbers"),
        (("requests", 0, "acceptance", "accepted_tokens"), 10**6, "accepted tokens = 1000000"),
        (("speculation", "tree", "nodes"), 99, "tree of depth 3"),
        (("requests", 0, "timing", "chunk_tokens"), None, r"timing\.chunk_tokens is null where detail is instants or ends"),
        (("requests", 0, "timing", "detail"), "ends", r"timing\.chunk_tokens is null where"),
        (("requests", 0, "timing", "detail"), "most", r"unknown requests\[0\]\.timing\.detail 'most'"),
        (("requests", 0, "timing"), [], r"requests\[0\]\.timing = \[\] is not an object"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(path: tuple[str | int, ...], value: object, message: str) -> None:
    """A file edited by hand must fail where it was edited, not somewhere in the gate."""
    with pytest.raises(BadInputError, match=message) as caught:
        run_from_json(broken(path, value), name="edited.json")
    assert str(caught.value).startswith("'edited.json'")


def test_an_unknown_word_and_key_are_bad_input() -> None:
    """The command line exits 2 for either."""
    assert issubclass(UnknownNameError, BadInputError)
    with pytest.raises(BadInputError):
        run_from_json("[]", name="x")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(number: str) -> None:
    """NaN compares false with every bound, so it would pass any claim written the wrong way round."""
    text = run_to_json(summaries_only(Arm.BASELINE, step_s=0.125, counts=None)).replace("0.125", number)
    with pytest.raises(BadInputError):
        run_from_json(text, name="x")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_file_that_was_cut_off_says_so(share: float) -> None:
    """Half a run must not be gated as a whole one."""
    text = run_to_json(whole())
    with pytest.raises(BadInputError, match="cut off"):
        run_from_json(text[: int(share * len(text))], name="x")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"schema":' + "9" * 5000 + "}"])
def test_hostile_files_are_bad_input(text: str) -> None:
    """A file from elsewhere must not end the program with a traceback."""
    with pytest.raises(BadInputError):
        run_from_json(text, name="x")


def test_files_that_cannot_be_read_or_written_say_so(tmp_path: Path) -> None:
    """Exit code 2 and a sentence, and nothing left behind."""
    with pytest.raises(BadInputError, match="No such file"):
        read_run(tmp_path / "none.json")
    (tmp_path / "latin.json").write_bytes(b"\xff")
    with pytest.raises(BadInputError, match="UTF-8"):
        read_run(tmp_path / "latin.json")
    with pytest.raises(BadInputError, match=r"cannot write 'run\.json'"):
        write_run(whole(), tmp_path / "none" / "run.json")
    (tmp_path / "taken").mkdir()
    with pytest.raises(BadInputError, match="cannot write 'taken'"):
        write_run(whole(), tmp_path / "taken")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["latin.json", "taken"]


def test_a_run_with_nan_is_not_written(tmp_path: Path) -> None:
    """What cannot be read back must not be written."""
    arguments: Any = {"alpha": float("nan")}
    with pytest.raises(BadInputError, match="not finite"):
        write_run(replace(whole(), provenance=replace(provenance(), arguments=arguments)), tmp_path / "run.json")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    """A crash in mid-write must not cost the measurement that was there."""
    path = tmp_path / "run.json"
    write_run(pair(n=2)[0], path)
    before = path.read_bytes()
    arguments: Any = {"alpha": float("inf")}
    with pytest.raises(BadInputError):
        write_run(replace(whole(), provenance=replace(provenance(), arguments=arguments)), path)
    assert path.read_bytes() == before


def test_counts_without_positions_and_requests_without_chunks_come_back() -> None:
    """A refused request has no chunk, and totals have no positions."""
    timing = RequestTiming(
        arrived_at_s=0.0, sent_at_s=0.0, chunk_at_s=np.empty(0), chunk_tokens=np.empty(0, dtype=np.int64), ended=Ended.ERROR
    )
    counts = AcceptanceCounts(steps=None, drafts=1, drafted_tokens=3, accepted_tokens=2, accepted_per_position=None)
    refused = RequestRecord(
        id="r", segment="s", prompt_tokens=1, output_tokens=0, timing=timing, acceptance=counts, outcome=Outcome.REFUSED
    )
    made = replace(whole(), requests=(refused,), provenance=replace(provenance(), seed=None))
    assert run_from_json(run_to_json(made), name="x") == made


@pytest.mark.parametrize("detail", [Detail.INSTANTS, Detail.ENDS])
def test_sizes_that_were_not_seen_are_null_and_come_back_unseen(detail: Detail) -> None:
    """Whoever keeps a reading of another tool's file: what was unknown stays unknown."""
    timing = RequestTiming.of_total(
        arrived_at_s=0.0, sent_at_s=0.5, chunk_at_s=np.array([1.0, 2.0]), output_tokens=7, ended=Ended.STOP, detail=detail
    )
    record = RequestRecord(id="r", segment="s", prompt_tokens=1, output_tokens=7, timing=timing, acceptance=None, outcome=Outcome.FINISHED)
    text = run_to_json(replace(whole(), requests=(record,)))
    assert json.loads(text)["requests"][0]["timing"]["chunk_tokens"] is None
    again = run_from_json(text, name="x")
    assert again.requests == (record,)


def test_a_run_file_that_states_an_impossible_figure_is_refused_by_its_name() -> None:
    """A hand-edited file ships what no server can do."""
    wrong = {"value": 1.5, "statistic": "pooled", "n": None, "low": None, "high": None}
    with pytest.raises(BadInputError, match=r"the summary 'alpha' = 1\.5 is not within 0 and 1"):
        run_from_json(broken(("summaries", "alpha"), wrong), name="run.json")


def test_a_run_file_with_a_request_id_twice_is_refused() -> None:
    """A file that was pasted together counts each request twice, and its intervals are too narrow."""
    requests = json.loads(run_to_json(whole()))["requests"]
    with pytest.raises(BadInputError, match="1 request ids stand there twice"):
        run_from_json(broken(("requests",), [*requests, requests[0]]), name="run.json")
