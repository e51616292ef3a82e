"""Damaged result files: refused, or read without the damage; never a crash, never a figure made of it."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.errors import PacelineError
from paceline.files.found import Found
from tests.benchfiles import FOLDER, read_all

FILES = sorted(each for each in FOLDER.rglob("*") if each.is_file())
DOCUMENTS = [each for each in FILES if each.suffix == ".json"]
UNLAWFUL = (math.nan, -math.inf, "x", "7", True, -1, -0.5, 10**400)
FREE_KEYS = ("request_rate", "turns")  # an infinite rate is lawful


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a damaged copy is written, one over the other."""
    return tmp_path_factory.mktemp("damaged") / "damaged"


def figures(found: tuple[Found, ...]) -> dict[tuple[str, str], float]:
    """Every figure of every run; all of them finite and none a time below 0."""
    values: dict[tuple[str, str], float] = {}
    for each in found:
        run = each.run
        named = {name: summary.value for name, summary in run.summaries.items()}
        named |= {name: value for name in ("step_seconds", "window_s") if (value := getattr(run, name)) is not None}
        for segment, counts in (run.acceptance_by_segment or {}).items():
            named |= {f"{segment} {key}": getattr(counts, key) or 0 for key in ("drafts", "drafted_tokens", "accepted_tokens")}
        assert all(math.isfinite(value) and value >= 0 for value in named.values())
        values |= {(each.label, name): value for name, value in named.items()}
    return values


def numbers_in(value: Any, holder: Any = None, key: Any = None) -> Iterator[tuple[Any, Any]]:
    """Where each number of a document stands: what holds it, and under which key or index."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from numbers_in(each, value, name)
    elif isinstance(value, list):
        for i, each in enumerate(value):
            yield from numbers_in(each, value, i)
    elif isinstance(value, int | float) and not isinstance(value, bool) and key not in FREE_KEYS:
        yield holder, key


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(source=st.sampled_from(DOCUMENTS), place_in=st.integers(0, 10**6), bad=st.sampled_from(UNLAWFUL))
def test_a_number_that_is_none_is_refused_or_changes_no_figure(place: Path, source: Path, place_in: int, bad: Any) -> None:
    """Whoever's file holds one wrong value: a figure is as it was, or there is none."""
    document = json.loads(source.read_text(encoding="utf-8"))
    spots = list(numbers_in(document))
    holder, key = spots[place_in % len(spots)]
    holder[key] = bad
    place.write_text(json.dumps(document), encoding="utf-8")
    try:
        found = figures(read_all(place))
    except PacelineError:
        return
    before = figures(read_all(source))
    assert all(before.get(name) == value for name, value in found.items()), (source.name, key, bad)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(source=st.sampled_from(FILES), at=st.integers(0, 10**6), length=st.integers(0, 200), put=st.binary(max_size=20), cut=st.booleans())
def test_damaged_bytes_are_refused_or_read(place: Path, source: Path, at: int, length: int, put: bytes, cut: bool) -> None:
    """Whoever copied half a file, or a file over another: an error that says so, at worst."""
    content = source.read_bytes()
    at %= len(content)
    place.write_bytes(content[:at] if cut else content[:at] + put + content[at + length :])
    try:
        figures(read_all(place))
    except PacelineError:
        return
