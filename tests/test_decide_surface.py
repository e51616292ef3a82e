"""The best draft length of each load, from the points of a sweep."""

from paceline.decide.surface import Corner, Point, Setting, best_draft_lengths


def point(concurrency: int, draft_tokens: int, speedup: float, *, simulated: float | None = None, alpha: float = 0.5) -> Point:
    """A point with this speed-up."""
    return Point(
        setting=Setting(corner=Corner(context_tokens=700, concurrency=concurrency), draft_tokens=draft_tokens, alpha=alpha),
        tokens_per_step=2.0,
        step_time_ratio=2 / speedup,
        step_time_low=1.0,
        step_time_high=2.0,
        break_even_alpha=0.3,
        break_even_low=0.2,
        break_even_high=0.4,
        speedup=speedup,
        simulated_speedup=simulated,
        simulated_step_time_ratio=None,
        simulated_tpot_p99_ratio=None,
    )


def test_the_best_length_has_the_largest_speedup_and_none_where_nothing_pays() -> None:
    """A length below 1 would be deployed where plain decoding is faster."""
    points = [point(8, 1, 1.2), point(8, 3, 1.4), point(8, 5, 1.4), point(64, 1, 0.99), point(64, 3, 0.8), point(1, 1, 1.0)]
    assert best_draft_lengths(points) == {(700, 0.5): {1: 0, 8: 3, 64: 0}}


def test_what_was_simulated_outweighs_the_forecast() -> None:
    """The closed form knows no prefill beside decoding."""
    points = [point(8, 1, 1.2, simulated=1.3), point(8, 3, 1.5, simulated=1.1), point(8, 3, 1.5, alpha=0.7)]
    assert best_draft_lengths(points) == {(700, 0.5): {8: 1}, (700, 0.7): {8: 3}}
