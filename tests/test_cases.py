"""Situations that people reported, each with what a correct tool says of it: `data/cases/table.json`.

A row names the reader that it needs in `since`. A row that states figures of a thread instead of naming a file has them written as run
files first.
"""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.files.runfile import write_run
from paceline.latency import Detail, Ended, RequestTiming
from paceline.run import Arm, Evidence, Load, Outcome, Provenance, RequestRecord, Run, Summary
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Method, Speculation, Tree
from tests.conftest import Answer

DATA = Path(__file__).parent / "data"
TABLE = json.loads((DATA / "cases" / "table.json").read_text(encoding="utf-8"))
ROWS = TABLE["rows"]
COUNTS = ("drafts", "drafted_tokens", "accepted_tokens", "accepted_per_position", "steps")
MISSING = object()
PLACE = re.compile(r"\{(\w+)\}")  # JSON has quotes behind its braces


def counts_of(figures: Sequence[Any]) -> AcceptanceCounts:
    """Drafts, drafted and accepted tokens, and if given those by position and the steps."""
    counts = dict(zip(COUNTS, [*figures, None, None], strict=False))
    if counts["accepted_per_position"] is not None:
        counts["accepted_per_position"] = tuple(counts["accepted_per_position"])
    return AcceptanceCounts(**counts)


def speculation_of(method: str, draft_tokens: int, tree: Sequence[int] | None = None) -> Speculation:
    """How it drafts."""
    shape = None if tree is None else Tree(depth=tree[0], topk=tree[1], nodes=tree[2])
    return Speculation(method=Method(method), draft_tokens=draft_tokens, tree=shape)


def records_of(groups: Sequence[dict[str, Any]]) -> tuple[RequestRecord, ...]:
    """Requests of which a thread states lengths and pace, one after the other, `n` alike in each group."""
    found: list[RequestRecord] = []
    for each in groups:
        for _ in range(each["n"]):
            first_s = len(found) * 1000.0 + each["ttft_s"]
            timing = RequestTiming.of_total(
                arrived_at_s=len(found) * 1000.0,
                sent_at_s=len(found) * 1000.0,
                chunk_at_s=np.array([first_s, first_s + each["tpot_s"] * (each["output_tokens"] - 1)]),
                output_tokens=each["output_tokens"],
                ended=Ended.STOP,
                detail=Detail.ENDS,
            )
            found.append(
                RequestRecord(
                    id=str(len(found)),
                    segment=each.get("segment", "all"),
                    prompt_tokens=each["prompt_tokens"],
                    output_tokens=each["output_tokens"],
                    timing=timing,
                    acceptance=counts_of(each["acceptance"]) if "acceptance" in each else None,
                    outcome=Outcome.FINISHED,
                )
            )
    return tuple(found)


def stated(arm: str, row: dict[str, Any]) -> Run:
    """The figures that a thread states, as a run."""
    records = records_of(row["requests"]) if "requests" in row else None
    counted = [each.acceptance for each in records or () if each.acceptance is not None]
    counts = counts_of(row["acceptance"]) if "acceptance" in row else AcceptanceCounts.pooled(counted) if counted else None
    return Run(
        arm=Arm(row.get("arm", "baseline" if arm.endswith("baseline") else "speculative")),
        speculation=speculation_of(*row["speculation"]) if "speculation" in row else None,
        load=Load(concurrency=row["concurrency"], rate_per_s=None),
        requests=records,
        acceptance_by_segment=None if counts is None else {"all": counts},
        step_seconds=None,
        summaries={name: Summary(value=value, statistic="mean", n=None, low=None, high=None) for name, value in row["summaries"].items()},
        window_s=None,
        provenance=Provenance(
            made_by="a thread", version="", evidence=Evidence.STATED, arguments=row.get("arguments", {}), inputs={}, seed=None
        ),
        cautions=(),
    )


def inputs_of(row: dict[str, Any], folder: Path) -> dict[str, Path]:
    """The row's files by the name that its arguments give them."""
    files = {"folder": folder} | {name: DATA / path for name, path in row.get("inputs", {}).items()}
    for name, figures in row.get("stated", {}).items():
        files[name] = folder / f"{name}.json"
        write_run(stated(name, figures), files[name])
    for name, texts in row.get("answers", {}).items():
        files[name] = folder / f"{name}.jsonl"
        lines = [json.dumps({"id": str(number), "text": text}) + "\n" for number, text in enumerate(texts)]
        files[name].write_text("".join(lines), encoding="utf-8")
    return files


def at(document: object, path: str) -> object:
    """The value at a dotted path; a null on the way is the value. Of a list a number picks by place, a word by `code`."""
    for key in path.split("."):
        if document is None:
            return None
        if isinstance(document, list) and not key.isdecimal():
            document = next((each for each in document if each["code"] == key), {})
        elif isinstance(document, list):
            document = document[int(key)] if int(key) < len(document) else MISSING
        else:
            assert isinstance(document, dict), f"{path}: {key} of {document!r}"
            document = document.get(key)
    return document


@pytest.mark.parametrize("row", ROWS, ids=[each["id"] for each in ROWS])
def test_a_reported_situation_gets_the_answer_that_was_written_down_before(
    row: dict[str, Any], tmp_path: Path, paceline: Callable[[Sequence[str]], Answer]
) -> None:
    """Whoever has the same situation: the figure that the reporters and maintainers arrived at, or an honest refusal."""
    files = inputs_of(row, tmp_path)
    answer = paceline([PLACE.sub(lambda place: str(files[place[1]]), each) for each in row["arguments"]])
    assert answer.code == row["exit"], answer.err
    if not answer.out:
        assert not row["values"]
        assert answer.err
        return
    document = json.loads(answer.out)
    for each in row["values"]:
        found, wanted = at(document, each["path"]), each["value"]
        if isinstance(wanted, int | float):
            assert found == pytest.approx(wanted, rel=0, abs=each["tolerance"]), each["path"]
        else:
            assert found == wanted, each["path"]
    assert set(row["warnings"]) <= {each["code"] for each in document["warnings"]}
    named = {key: {each.get("code") for each in document.get(key, [])} for key in ("causes", "not_checked", "findings")}
    assert set(row.get("causes", [])) <= named["causes"]
    assert not set(row.get("not_causes", [])) & named["causes"]
    assert set(row.get("not_checked", [])) <= named["not_checked"]
    assert set(row.get("findings", [])) <= named["findings"]
    assert not set(row.get("not_findings", [])) & named["findings"]


def test_every_case_is_in_the_table_once_and_every_row_names_a_reader() -> None:
    """Whoever adds a case: none is forgotten, none waits for a reader that nobody writes."""
    here = {each["id"].split("/")[0] for each in TABLE["rows"]}
    elsewhere = [each["id"] for each in TABLE["elsewhere"]]
    assert not here & set(elsewhere)
    assert len(here) + len(elsewhere) == 62
    assert len({each["id"] for each in TABLE["rows"]}) == len(TABLE["rows"])
    assert all(each["since"] for each in TABLE["rows"])
