"""A rate beside the counts that it follows from: said where the two differ, and only there."""

import json
from pathlib import Path

import pytest

from paceline.files.evidence import read_all
from paceline.servers.stated_rates import differing

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize(
    ("stated", "told"),
    [
        ({"alpha": 0.6, "acceptance_length": 2.2}, []),  # 12 of 20 in 10 drafts
        ({"alpha": 0.604, "acceptance_length": 2.205}, []),  # as rounded
        ({"alpha": 0.65, "acceptance_length": 2.3}, ["alpha is stated as 0.65, but", "acceptance_length is stated as 2.3, but"]),
        ({"alpha": None, "acceptance_length": 1.2}, ["acceptance_length is stated as 1.2, but the counts beside it give 2.2"]),
    ],
)
def test_a_stated_figure_is_held_against_the_counts(stated: dict[str, float | None], told: list[str]) -> None:
    """A file that was pasted together of two runs: its rate is the one's, its counts are the other's."""
    found = differing(stated, drafts=10, drafted_tokens=20, accepted_tokens=12)
    assert [each.message[: len(text)] for each, text in zip(found, told, strict=True)] == told
    assert {each.code for each in found} <= {"stated_rate_differs"}


def test_without_counts_nothing_is_compared() -> None:
    """A rate of a moment would be doubted against nothing."""
    assert differing({"alpha": 0.5, "acceptance_length": 3.0}, drafts=None, drafted_tokens=None, accepted_tokens=0) == ()


def test_where_nothing_was_drafted_a_rate_is_0_and_a_length_at_most_1() -> None:
    """Builds write 0 or 1 for the length of nothing; 5 is of something else."""
    for length, codes in ((0.0, 0), (1.0, 0), (5.0, 2)):
        stated = {"alpha": length and length - 1, "acceptance_length": length}
        assert len(differing(stated, drafts=0, drafted_tokens=0, accepted_tokens=0)) == codes


@pytest.mark.parametrize(
    ("name", "was", "instead"),
    [
        ("benchfiles/vllm-0.32.0-ngram-chat.json", '"spec_decode_acceptance_rate": 32.5', '"spec_decode_acceptance_rate": 92.5'),
        ("benchfiles/vllm-0.32.0-ngram-chat.json", '"spec_decode_acceptance_length": 2.3', '"spec_decode_acceptance_length": 4.3'),
        ("benchfiles/vllm-text-k2.log", "Acceptance length:                       1.40", "Acceptance length:                       2.40"),
        ("benchfiles/guidellm-0.8.1-spec.json", '"mean_acceptance_length": 3.0', '"mean_acceptance_length": 1.5'),
        ("benchfiles/vllm-0.32.0-answer.json", '"mean_acceptance_length": 1.0', '"mean_acceptance_length": 4.0'),
        (
            "dumps/lmdeploy-two-drafts.prom",
            'mean_accept_length{engine="2",model_name="test-model"} 2.5',
            'mean_accept_length{engine="2",model_name="test-model"} 3.5',
        ),
        ("dumps/tensorrt-llm-iterations.json", '"acceptanceLength": 2.5', '"acceptanceLength": 3.5'),
        ("dumps/sglang-verify-calls.prom", 'pp_rank="0",tp_rank="0"} 2.9', 'pp_rank="0",tp_rank="0"} 13.7'),
        ("dumps/vllm-0.9.2-v0-llama-3.1-70b-mlp.prom", "} 0.08776726419729605", "} 0.9"),
    ],
)
def test_each_reader_says_so(tmp_path: Path, name: str, was: str, instead: str) -> None:
    """Whoever trusts the headline of a report whose counts say something else."""
    text = (DATA / name).read_text(encoding="utf-8")
    assert was in text
    damaged = tmp_path / Path(name).name
    for content, expected in ((text, False), (text.replace(was, instead), True)):
        damaged.write_text(content, encoding="utf-8")
        codes = {each.code for found in read_all(damaged) for each in found.run.cautions}
        assert ("stated_rate_differs" in codes) == expected, json.dumps(sorted(codes))
