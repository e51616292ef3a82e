"""The page of a training: to be looked at while it goes on, and to be believed afterwards."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from paceline.errors import NoEvidenceError
from paceline.report.head_page import head_html
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.trained_head import Epoch, best_epoch

NASTY = "<script>alert(1)</script>"


def counted(accepted: tuple[int, ...], *, steps: int = 10) -> AcceptanceCounts:
    drafted = steps * len(accepted)
    return AcceptanceCounts(
        steps=steps, drafts=steps, drafted_tokens=drafted, accepted_tokens=sum(accepted), accepted_per_position=accepted
    )


def epoch(number: int, *accepted: tuple[int, ...]) -> Epoch:
    return Epoch(
        epoch=number,
        updates=50 * number,
        loss=2.0 / number,
        learning_rate=0.001 / number,
        by_exchange=tuple(map(counted, accepted)),
        answer_tokens=3000,
        seconds=2.0,
    )


# Of every 40 drafts 12, 24 and 20 are accepted: 1.6, 2.2 and 2 tokens per step.
CURVES = tuple(epoch(number, *pair * 6) for number, pair in enumerate((((4, 0), (6, 2)), ((9, 5), (7, 3)), ((7, 4), (6, 3))), 1))


def page(curves: tuple[Epoch, ...] = CURVES, *, title: str = "A head", planned: int = 3) -> str:
    return head_html(curves, title=title, planned=planned, version="0.1.0", confidence=0.95, rng=np.random.default_rng(0))


def test_the_page_stands_alone() -> None:
    """It is opened on machines without a network, and mailed around."""
    text = page(title=NASTY)
    assert not re.search(r"<script|<link|<img|@import|url\(|src=|href=", text)
    assert "&lt;script&gt;" in text
    assert set(re.findall(r"https?://[^\s\"<]+", text)) == {"http://www.w3.org/2000/svg"}
    drawings = [ET.fromstring(each) for each in re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)]  # noqa: S314 (ours)
    titles = [drawing[0].text for drawing in drawings]
    assert titles == [
        "Loss by epoch",
        "α by epoch",
        "tokens per step by epoch",
        "learning rate by epoch",
        "Steps that accept every draft up to a position",
    ]


def test_the_figures_are_the_counts_with_their_intervals() -> None:
    """A head would be chosen by a figure whose noise nobody sees."""
    text = page()
    assert "epoch 1: 0.300 (" in text
    assert "epoch 2: 0.600 (" in text
    assert "draft 1: 0.800 (" in text
    assert "draft 2: 0.400 (" in text
    assert re.search(r"<td>2 \(best\)</td><td>100</td><td>1.00</td><td>0.600 \(0\.\d+ to 0\.\d+\)</td><td>2.20 \(", text)
    assert "epoch 3: 0.000333" in text
    assert best_epoch(CURVES) is CURVES[1]


def test_the_page_is_loaded_again_until_the_training_is_done() -> None:
    """Whoever looks while it trains would see the first epoch for ever; whoever looks later would lose their place."""
    assert 'http-equiv="refresh"' in page(CURVES[:1], planned=3)
    assert "After 1 of 3 epochs" in page(CURVES[:1], planned=3)
    assert 'http-equiv="refresh"' not in page()
    assert "All 3 epochs are done" in page()


def test_a_single_exchange_has_no_interval() -> None:
    """One answer's tokens are not independent: a narrow band around them would be made up."""
    text = page((epoch(1, (4, 0)),), planned=1)
    assert "0.200 (? to ?)" in text


def test_epochs_stand_evenly_and_not_every_one_is_named() -> None:
    """Forty names on one axis are a black bar, and a curve that falls evenly would look like one that stops falling."""
    text = page(tuple(epoch(number, (5, 1), (6, 2)) for number in range(1, 41)), planned=40)
    drawing = text[text.index("<svg") : text.index("</svg>")]
    named = re.findall(r'text-anchor="middle"[^>]*>(\d+)</text>', drawing)
    assert named == [str(each) for each in range(1, 41, 4)]
    places = [float(each) for each in re.findall(r'<circle cx="([\d.]+)"', drawing)]
    steps = np.diff(places)
    assert steps.max() - steps.min() < 0.21  # written to a tenth


def test_nothing_learnt_or_drafted_is_nothing_to_report() -> None:
    """A page full of zeros passes for a measurement."""
    with pytest.raises(NoEvidenceError, match="no epoch is done"):
        page(())
    undrafted = AcceptanceCounts(steps=1, drafts=0, drafted_tokens=0, accepted_tokens=0, accepted_per_position=())
    with pytest.raises(NoEvidenceError, match="nothing was drafted"):
        page((Epoch(epoch=1, updates=1, loss=1.0, learning_rate=0.1, by_exchange=(undrafted,), answer_tokens=1, seconds=1.0),))
