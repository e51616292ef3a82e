"""What the engine wrote, shown: by hand."""

from dataclasses import replace

from paceline.report.generation import DraftedStep, Origin, Piece, Written, generation_dict, generation_text
from paceline.speculation.counts import AcceptanceCounts

# "A pace" is drafted after the first token: all right, then a bonus; then "a car" is drafted of which only "a" is right.
PIECES = (
    Piece(1, "It", Origin.FIRST),
    Piece(2, " is", Origin.ACCEPTED),
    Piece(3, " a", Origin.ACCEPTED),
    Piece(4, " line", Origin.BONUS),
    Piece(5, " of", Origin.ACCEPTED),
    Piece(6, " riders", Origin.RECOVERED),
    Piece(7, ".\n", Origin.PLAIN),
)
STEPS = (
    DraftedStep((2, 3), (" is", " a"), (-1, 0), (0, 1), Origin.BONUS),
    DraftedStep((5, 9), (" of", " cars"), (-1, 0), (0,), Origin.RECOVERED),
    DraftedStep((), (), (), (), Origin.PLAIN),
)
COUNTS = AcceptanceCounts(steps=3, drafts=2, drafted_tokens=4, accepted_tokens=3, accepted_per_position=(2, 1))
WRITTEN = Written("What is it?", PIECES, STEPS, stopped=True, counts=COUNTS)


def test_the_trace_marks_what_was_drafted_and_what_was_recovered() -> None:
    """Somebody who looks at one text sees which of its words the draft wrote."""
    [shown] = generation_dict([WRITTEN], {"alpha": 0.75}, seconds=2.0)["generations"]
    assert shown["text"] == "It is a line of riders.\n"
    assert shown["trace"] == "It[ is a] line[ of]{ riders}.\\n"
    assert shown["tokens"][1] == {"id": 2, "text": " is", "origin": "accepted"}
    assert shown["steps"][1] == {
        "drafted": [{"id": 5, "text": " of", "parent": -1}, {"id": 9, "text": " cars", "parent": 0}],
        "accepted": [0],
        "last": "recovered",
    }
    assert shown["stopped"]


def test_positions_count_what_ended_a_step_there() -> None:
    """Both drafts begin right; at position 2 one is right and one recovered; the one that is all right ends in a bonus at position 3."""
    body = generation_dict([WRITTEN], {"alpha": 0.75}, seconds=2.0)
    assert body["accepted_per_position"] == [2, 1, 0]
    assert body["recovered_per_position"] == [0, 1, 0]
    assert body["bonus_per_position"] == [0, 0, 1]
    assert (body["output_tokens"], body["output_tokens_per_s"]) == (7, 3.5)
    text = generation_text([WRITTEN], body, how="drafts: ngram, K = 2", streamed=False)
    assert "7 tokens in 2.00 s, 3.5 tokens/s, 3 steps; drafts: ngram, K = 2" in text
    assert text.splitlines()[-2].split() == ["2", "2", "1", "1", "0"]


def test_plain_decoding_has_no_acceptance() -> None:
    """Nothing was drafted, so a table of zeros would claim that drafts fail."""
    nothing = AcceptanceCounts(steps=1, drafts=0, drafted_tokens=0, accepted_tokens=0, accepted_per_position=())
    plain = replace(WRITTEN, pieces=(PIECES[0], PIECES[6]), steps=STEPS[2:], counts=nothing)
    body = generation_dict([plain], {}, seconds=1.0)
    assert body["acceptance"] is None
    assert body["accepted_per_position"] == [0]
    assert "position" not in generation_text([plain], body, how="plain decoding", streamed=False)


def test_what_a_model_wrote_does_not_steer_the_terminal() -> None:
    """A log with an escape sequence in it, learnt and written again, would clear the reader's screen or hide a line."""
    hostile = replace(WRITTEN, pieces=(Piece(1, "a\x1b[2J", Origin.FIRST), Piece(2, '{"k": [1]}\n\tend', Origin.ACCEPTED)))
    body = generation_dict([hostile], {"alpha": 0.75}, seconds=1.0)
    text = generation_text([hostile], body, how="drafts", streamed=False)
    assert text.startswith('a\\x1b[2J{"k": [1]}\n\tend\n')
    assert 'trace: a\\x1b\\[2J[\\{"k": \\[1\\]\\}\\n\\tend]' in text
    assert "\x1b" not in text


def test_a_text_that_was_streamed_is_not_printed_again() -> None:
    """Twice the text, and the reader looks for the difference."""
    body = generation_dict([WRITTEN], {"alpha": 0.75}, seconds=2.0)
    assert generation_text([WRITTEN], body, how="drafts", streamed=True).startswith("trace: It[ is a]")
