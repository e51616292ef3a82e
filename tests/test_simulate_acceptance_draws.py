"""What chance decides about acceptance."""

from math import inf, log, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from paceline.simulate.acceptance_draws import base_logits, chance, conditional_at, conditional_by_request, pooled_survival
from paceline.speculation.acceptance import Acceptance


def test_a_coin_flip_on_one_position_needs_no_shift() -> None:
    """Who reads a base must find logistic(0) = 1/2, and symmetry about it where nothing weighs by steps."""
    base = base_logits(Acceptance(survival=(0.5,), coverage=0.0), spread=2.0)
    assert base[0] == pytest.approx(0.0, abs=1e-9)


def test_steps_weigh_hard_requests_more_so_the_base_lies_above_the_stated_logit() -> None:
    """A base without the 1 / E weights would accept less than was measured on the same traffic."""
    stated = Acceptance(survival=(0.5,), coverage=1.0)
    assert base_logits(stated, spread=2.0)[0] > 0.1


def test_without_spread_the_base_is_the_logit_of_the_conditional_acceptance() -> None:
    """Spread 0 is the limit of small spreads, not another model."""
    base = base_logits(Acceptance(survival=(0.8, 0.4), coverage=1.0), spread=0.0)
    assert base == pytest.approx([log(0.8 / 0.2), 0.0], abs=1e-9)


def test_certain_and_impossible_positions_are_the_same_for_everybody() -> None:
    """A draft that is always right must not become sometimes wrong because requests differ."""
    base = base_logits(Acceptance(survival=(1.0, 0.5, 0.5, 0.0, 0.0), coverage=1.0), spread=1.0)
    assert (base[0], base[2], base[3], base[4]) == (inf, inf, -inf, -inf)
    assert conditional_at(base, spread=1.0, ease=np.array([-3.0, 3.0]))[:, [0, 3]].tolist() == [[1.0, 0.0], [1.0, 0.0]]


def test_pooled_survival_is_the_integral_of_the_docstring() -> None:
    """The quadrature is checked against scipy's adaptive one, so that no constant of ours hides an error."""
    base, spread, coverage = np.array([1.2, -0.3]), 1.7, 0.6

    def weighted(z: float, position: int) -> float:
        first, second = (1 / (1 + np.exp(-(b + spread * z))) for b in base)
        survival = (1.0, first, first * second)
        return float(np.exp(-z * z / 2) / sqrt(2 * np.pi) * survival[position] / (1 + coverage * (survival[1] + survival[2])))

    whole = quad(weighted, -12, 12, args=(0,), epsabs=1e-12)[0]
    expected = [quad(weighted, -12, 12, args=(position,), epsabs=1e-12)[0] / whole for position in (1, 2)]
    assert pooled_survival(base, spread=spread, coverage=coverage) == pytest.approx(expected, abs=1e-8)


@given(
    falls=st.lists(st.floats(0, 1), min_size=1, max_size=8),
    coverage=st.floats(0, 1),
    spread=st.floats(0, 10),
)
@settings(max_examples=60, deadline=None)
def test_pooled_survival_is_the_stated_one(falls: list[float], coverage: float, spread: float) -> None:
    """Who states a survival vector and a spread gets that survival, whatever the spread."""
    stated = tuple(np.cumprod(falls).tolist())
    base = base_logits(Acceptance(survival=stated, coverage=coverage), spread=spread)
    assert pooled_survival(base, spread=spread, coverage=coverage) == pytest.approx(stated, abs=1e-6)


def test_rows_belong_to_their_own_segments() -> None:
    """A mix-up would give code the acceptance of chat."""
    by_segment = {"chat": Acceptance(survival=(0.5, 0.25), coverage=1.0), "code": Acceptance(survival=(0.9, 0.0), coverage=1.0)}
    rows = conditional_by_request(by_segment, ("code", "chat", "code"), draft_tokens=2, spread=0.0, ease=np.zeros(3))
    assert rows.tolist() == [[0.9, 0.0], [0.5, 0.5], [0.9, 0.0]]


def test_easier_requests_accept_more() -> None:
    """With a spread the harm set is made of the hard requests; the sign decides who they are."""
    by_segment = {"all": Acceptance(survival=(0.6, 0.3), coverage=1.0)}
    rows = conditional_by_request(by_segment, ("all",) * 3, draft_tokens=2, spread=1.0, ease=np.array([-2.0, 0.0, 2.0]))
    assert (np.diff(rows, axis=0) > 0.1).all()


def test_a_longer_workload_leaves_the_first_requests_chance_alone() -> None:
    """Common random numbers hold across workload sizes, so a longer run refines a shorter one."""
    short, long = chance(7, requests=3), chance(7, requests=50)
    assert short.keys.tolist() == long.keys[:3].tolist()
    assert short.ease.tolist() == long.ease[:3].tolist()
    assert chance(8, requests=3).keys.tolist() != short.keys.tolist()
