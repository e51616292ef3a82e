"""A trained head as people and programs read it."""

from dataclasses import replace

from paceline.report.heads import head_dict, head_text, speculators_dict, speculators_text
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.trained_head import Epoch, SpeculatorsData, TrainedHead


def epoch(number: int, accepted: tuple[int, ...]) -> Epoch:
    counts = AcceptanceCounts(steps=100, drafts=100, drafted_tokens=200, accepted_tokens=sum(accepted), accepted_per_position=accepted)
    return Epoch(
        epoch=number, updates=50 * number, loss=2.0 / number, learning_rate=0.001, by_exchange=(counts,), answer_tokens=3000, seconds=2.0
    )


HEAD = TrainedHead(
    curves=(epoch(1, (50, 10)), epoch(2, (70, 40)), epoch(3, (60, 40))),
    best=epoch(2, (70, 40)),
    parameters=6_340_000,
    draft_vocab=2048,
    coverage=0.9995,
    aux_layers=(2, 15, 27),
    conversations=760,
    held_out_conversations=40,
    left_out=None,
    answer_tokens=110_000,
    inputs={},
)


def test_a_curve_holds_counts_and_the_ratios_made_of_them() -> None:
    """Whoever plots the curves would pool ratios of different sizes."""
    best = head_dict(HEAD)["best"]
    assert (best["steps"], best["accepted_per_position"], best["drafted_tokens"]) == (100, [70, 40], 200)
    assert (best["alpha"], best["tokens_per_step"], best["survival"]) == (0.55, 2.1, [0.7, 0.4])
    assert best["answer_tokens_per_s"] == 1500


def test_the_best_epoch_is_marked() -> None:
    """A reader takes the last line for the head that was kept."""
    lines = head_text(head_dict(HEAD), out="head").splitlines()
    assert [line.split()[:2] for line in lines if "(best)" in line] == [["2", "(best)"]]
    assert "after 2, 15, 27 layers" in lines[6]
    assert any("2,048 tokens, which are 99.95% of the answers" in line for line in lines)


def test_a_best_epoch_chosen_by_a_few_conversations_is_cautioned() -> None:
    """Whoever trains on a few prompts keeps the epoch that one answer liked, the first of forty, and is told nothing."""
    few = head_text(head_dict(replace(HEAD, held_out_conversations=7)), out="head")
    assert few.splitlines()[-1].startswith("! 7 conversations held out cannot tell epochs apart")
    assert "!" not in head_text(head_dict(replace(HEAD, held_out_conversations=8)), out="head")


def test_conversations_that_no_head_learnt_from_are_told() -> None:
    """A head that never saw a long conversation would be believed on long ones."""
    body = head_dict(replace(HEAD, left_out="2 of 802 conversations are left out: too long"))
    assert body["left_out"] == "2 of 802 conversations are left out: too long"
    assert head_text(body, out="head").splitlines()[-1] == "! 2 of 802 conversations are left out: too long"


def test_what_is_handed_over_comes_with_the_command_that_goes_on() -> None:
    """Another vocabulary's size or other layers, and the library trains without a word on what is not there."""
    data = SpeculatorsData(
        rows=800,
        left_out="3 are left out",
        answer_tokens=115_000,
        longest_tokens=412,
        draft_vocab=2048,
        coverage=0.9995,
        aux_layers=(2, 15, 27),
        inputs={},
    )
    text = speculators_text(data, target="my models/target", folder="prepared")
    assert "800 answers of 115,000 tokens are in prepared" in text
    assert "--verifier-name-or-path 'my models/target' --data-path prepared" in text
    assert "--draft-vocab-size 2048 --target-layer-ids 2 15 27 --on-missing raise" in text
    assert text.endswith("\n! 3 are left out")
    body = speculators_dict(data)
    assert (body["rows"], body["longest_tokens"], body["aux_layers"]) == (800, 412, [2, 15, 27])
