"""The demo traffic that ships: real answers, no loops, and a provenance that tells the truth about them."""

import gzip
import json
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import BadInputError
from paceline.traffic.loops import loop_share

DATA_DIR = Path(__file__).parents[1] / "src" / "paceline" / "data"
TRAFFIC_FILE = DATA_DIR / "demo_traffic.jsonl.gz"
END_OF_SEQUENCE = 2


@pytest.fixture(scope="module")
def exchanges() -> list[dict[str, Any]]:
    """Every exchange of the shipped file."""
    return [json.loads(line) for line in gzip.decompress(TRAFFIC_FILE.read_bytes()).decode().splitlines()]


@pytest.fixture(scope="module")
def provenance() -> dict[str, Any]:
    """What the file beside it says about the traffic."""
    return tomllib.loads((DATA_DIR / "demo_traffic.toml").read_text(encoding="utf-8"))


def test_there_are_at_least_300_exchanges_in_less_than_a_megabyte(exchanges: list[dict[str, Any]]) -> None:
    """Who measures on fewer gets intervals too wide to learn from; who installs more waits for a download."""
    assert len(exchanges) >= 300
    assert TRAFFIC_FILE.stat().st_size < 1_000_000


def test_seven_in_ten_exchanges_are_chat_and_the_rest_is_code(exchanges: list[dict[str, Any]]) -> None:
    """The demo's mix is quoted in the tutorials: another mix would give other numbers than they print."""
    segments = Counter(exchange["segment"] for exchange in exchanges)
    assert set(segments) == {"chat", "code"}
    assert segments["chat"] / len(exchanges) == pytest.approx(0.70, abs=0.01)


def test_every_exchange_is_one_question_and_one_answer_with_their_tokens(exchanges: list[dict[str, Any]]) -> None:
    """A replay reads these keys and nothing else; a missing one stops it halfway through the file."""
    for exchange in exchanges:
        assert set(exchange) == {"messages", "segment", "finish_reason", "prompt_token_ids", "token_ids"}
        assert [message["role"] for message in exchange["messages"]] == ["user", "assistant"]
        assert all(message["content"].strip() for message in exchange["messages"])
        assert exchange["prompt_token_ids"]


def test_the_answer_ends_with_the_end_token_exactly_when_it_stopped(exchanges: list[dict[str, Any]]) -> None:
    """An answer cut at the limit that claims to have stopped would teach a wrong length distribution."""
    for exchange in exchanges:
        tokens = exchange["token_ids"]
        assert 1 <= len(tokens) <= 256
        if exchange["finish_reason"] == "stop":
            assert tokens.index(END_OF_SEQUENCE) == len(tokens) - 1
        else:
            assert exchange["finish_reason"] == "length"
            assert len(tokens) == 256
            assert END_OF_SEQUENCE not in tokens


def test_no_answer_has_more_than_a_tenth_of_its_tokens_in_loops(exchanges: list[dict[str, Any]]) -> None:
    """Loops are drafted for free: with them the demo would promise a speedup that real traffic does not give."""
    assert max(loop_share(exchange["token_ids"], n=8) for exchange in exchanges) <= 0.10


def test_no_prompt_is_asked_twice(exchanges: list[dict[str, Any]]) -> None:
    """An exchange that counts double makes every interval look narrower than it is."""
    prompts = Counter(exchange["messages"][0]["content"] for exchange in exchanges)
    assert max(prompts.values()) == 1


@pytest.mark.parametrize("segment", ["all", "chat", "code"])
def test_the_provenance_counts_what_the_file_holds(segment: str, exchanges: list[dict[str, Any]], provenance: dict[str, Any]) -> None:
    """A reader judges the data by its provenance; one that miscounts makes the rest of it worthless."""
    counts = provenance["counts"][segment]
    ours = [exchange for exchange in exchanges if segment in ("all", exchange["segment"])]
    assert counts["kept"] == len(ours)
    assert counts["asked"] == counts["dropped_as_loops"] + counts["trimmed"] + counts["kept"]
    assert counts["dropped_as_loops_share"] == pytest.approx(counts["dropped_as_loops"] / counts["asked"], abs=5e-5)
    assert counts["stopped"] == sum(exchange["finish_reason"] == "stop" for exchange in ours)
    assert counts["prompt_tokens"] == sum(len(exchange["prompt_token_ids"]) for exchange in ours)
    assert counts["output_tokens"] == sum(len(exchange["token_ids"]) for exchange in ours)


def test_the_packed_file_holds_no_time_stamp() -> None:
    """Equal answers must give equal bytes, or nobody can check that the file is what the script makes."""
    assert TRAFFIC_FILE.read_bytes()[4:8] == b"\0\0\0\0"


def test_a_position_is_in_a_loop_when_a_repeating_n_gram_covers_it() -> None:
    """The filter rests on this count; positions counted twice or not at all would let loops through."""
    assert loop_share([1, 2, 3, 1, 2, 4], n=2) == pytest.approx(2 / 6)
    assert loop_share([7, 7, 7, 7], n=2) == pytest.approx(3 / 4)
    assert loop_share([1, 2, 3], n=8) == 0.0


def test_an_empty_output_has_no_loop_share() -> None:
    """A share of nothing that reads 0 would pass an answer that is not there."""
    with pytest.raises(BadInputError, match="without tokens"):
        loop_share([], n=8)
    with pytest.raises(BadInputError, match="n=0"):
        loop_share([1], n=0)
