"""Which segment an exchange falls into, by field, by rule, or not at all."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError, UnknownNameError
from paceline.traffic.segments import KNOWN_FIELDS, UNLABELLED, SegmentRule, SegmentRuleKind, segment_rule


def test_a_named_field_gives_the_segment_and_a_path_reaches_inside() -> None:
    """Labels that gateways put under `metadata` would all be lost, and acceptance pooled over unlike traffic."""
    rule = segment_rule(name=None, field="metadata.kind")
    assert rule.segment_of({"metadata": {"kind": "sql"}, "segment": "other"}, texts=()) == "sql"
    assert rule.segment_of({"metadata.kind": "dotted", "metadata": {"kind": "sql"}}, texts=()) == "dotted"


@pytest.mark.parametrize(("value", "name"), [("  qa ", "qa"), (3, "3"), (2.5, "2.5"), (True, "true"), (0, "0")])
def test_a_scalar_is_a_name(value: object, name: str) -> None:
    """Logs that number their categories would come out unlabelled."""
    assert segment_rule(name=None, field="category").segment_of({"category": value}, texts=()) == name


@pytest.mark.parametrize("row", [{}, {"category": None}, {"category": " "}, {"category": ["a"]}, {"category": {"a": 1}}])
def test_a_line_without_a_label_is_unlabelled(row: dict[str, object]) -> None:
    """It would vanish from the table of segments, or make one up out of a nested value."""
    assert segment_rule(name=None, field="category").segment_of(row, texts=()) == UNLABELLED
    assert segment_rule(name=None, field="category.a.b").segment_of({"category": "text"}, texts=()) == UNLABELLED


def test_with_no_field_named_the_known_ones_are_tried_in_order() -> None:
    """A log with both a segment and a data set's name would be split by whichever came first in the file."""
    rule = segment_rule(name=None, field=None)
    assert rule.segment_of({"dataset": "d", "category": "c", "segment": "s"}, texts=()) == "s"
    assert rule.segment_of({"metadata": {"task": "t"}, "dataset": "d"}, texts=()) == "d"
    assert rule.segment_of({"metadata": {"task": "t"}}, texts=()) == "t"
    assert rule.fields == KNOWN_FIELDS


@pytest.mark.parametrize(
    "text",
    [
        "Look:\n```\nx\n```",
        "def add(a, b):",
        "    async def run(self):",
        "class Foo(Bar):",
        "class Foo {",
        "import numpy as np",
        "import os;",
        "from typing import List\n\n\ndef f():",
        "export async function load(url) {",
        "const x = 1;",
        "#include <stdio.h>",
        "public static int main(String[] args) {",
        "func main() {",
        "fn main() {",
        "SELECT name FROM users WHERE id = 1",
    ],
)
def test_text_with_a_program_line_is_code(text: str) -> None:
    """Code's acceptance, the highest there is, would be credited to chat."""
    assert segment_rule(name="code-or-chat", field=None).segment_of({}, texts=("Please help.", text)) == "code"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Import duties are high.",
        "import duties are high",
        "The class of 1999: a film.",
        "I select an apple from the tree.",
        "Please define function words.",
        "public health systems (and schools) matter",
        "Let us go.",
        "What is a def?",
    ],
)
def test_prose_is_chat(text: str) -> None:
    """Chat would be reported as code, and its low acceptance would drag code down."""
    assert segment_rule(name="code-or-chat", field=None).segment_of({}, texts=(text,)) == "chat"


def test_the_single_rule_puts_everything_into_all() -> None:
    """Whoever wants one figure gets the whole log and not the first label."""
    assert segment_rule(name="single", field=None).segment_of({"segment": "x"}, texts=("def f():",)) == "all"


def test_an_unknown_rule_names_the_known_ones() -> None:
    """A typo would read as another rule."""
    with pytest.raises(UnknownNameError, match="unknown segment rule 'code-or-chats'; nearest: code-or-chat"):
        segment_rule(name="code-or-chats", field=None)


def test_a_rule_and_a_field_together_are_refused() -> None:
    """One of the two would be ignored without a word."""
    with pytest.raises(BadInputError, match="give one of them"):
        segment_rule(name="single", field="category")
    with pytest.raises(BadInputError, match="fields belong to a rule by field"):
        SegmentRule(kind=SegmentRuleKind.SINGLE, fields=("a",))
    with pytest.raises(BadInputError, match="fields belong to a rule by field"):
        SegmentRule(kind=SegmentRuleKind.FIELD, fields=())
    with pytest.raises(BadInputError, match="has no name"):
        segment_rule(name=None, field="")


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.sampled_from(["a", "b", "a.b"]), st.recursive(st.none() | st.text() | st.floats(), st.lists, max_leaves=3)))
def test_every_line_has_a_segment_with_a_name(row: dict[str, object]) -> None:
    """A request without a segment's name is refused later, far from the line that caused it."""
    assert segment_rule(name=None, field="a.b").segment_of(row, texts=())
