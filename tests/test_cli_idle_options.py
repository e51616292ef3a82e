"""What is typed and would do nothing is refused, for every verb and method."""

import argparse
from collections.abc import Callable, Sequence

import pytest

from paceline.cli.idle_options import METHODS_OF, given_options
from paceline.cli.main import build_parser
from paceline.speculation.method import Method
from tests.conftest import Answer

Paceline = Callable[[Sequence[str]], Answer]
VALUES = {
    "suffix_depth": "8",
    "suffix_cached_requests": "5",
    "suffix_factor": "2",
    "suffix_least_probability": ".2",
    "ngram_min": "3",
    "ngram_max": "5",
    "draft": "llama-3.2-1b",
    "draft_vocab": "16000",
    "draft_context": "2048",
    "draft_temperature": ".7",
    "tree": "3,2,6",
    "rank_acceptance": ".6,.1",
}
VERBS = {
    "forecast": [],
    "memory": [],
    "simulate": [],
    "sweep": [],
    "config": [],
    "rollout": ["--out", "never-written"],
    "plan": ["runs"],
    "replay": ["demo"],
}


SERVERS = ["--out", "never-written", "--baseline", "http://127.0.0.1:9", "--speculative", "http://127.0.0.1:8"]


@pytest.fixture(scope="module")
def parser() -> argparse.ArgumentParser:
    """Built once: it is asked some hundred times."""
    return build_parser()


def takes(parser: argparse.ArgumentParser, verb: str, *words: str) -> bool:
    """Whether the verb has that option and takes that method."""
    try:
        parser.parse_args([verb, *VERBS[verb], *words])
    except SystemExit:
        return False
    return True


def idle() -> list[tuple[str, str, Method]]:
    """Every verb, option and method that do nothing together."""
    return [(verb, dest, method) for dest, methods in METHODS_OF.items() for method in Method if method not in methods for verb in VERBS]


@pytest.mark.parametrize("dest", METHODS_OF)
def test_an_option_of_another_method_is_refused_by_every_verb_that_has_it(
    dest: str, parser: argparse.ArgumentParser, paceline: Paceline, capsys: pytest.CaptureFixture[str]
) -> None:
    """A lookup depth typed for n-gram, or a vocabulary for a head that has none, is believed to be in the figures."""
    option, seen = f"--{dest.replace('_', '-')}", 0
    for verb, _, method in (each for each in idle() if each[1] == dest):
        words = ["--method", method.value, f"{option}={VALUES[dest]}"]
        if not takes(parser, verb, *words):
            capsys.readouterr()
            continue
        answer = paceline([verb, *VERBS[verb], *words])
        assert answer.code == 2, (verb, method)
        assert f"{option} does nothing with --method {method.value}" in answer.err
        seen += 1
    assert seen


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["forecast", "--tree", "3,2,6", "--draft-tokens", "5", "--acceptance-length", "2"], "5 is not the depth 3 of --tree"),
        (["forecast", "--draft", "llama-3.2-1b"], "give the folder of its config.json"),
        (["forecast", "--method", "eagle", "--draft", "llama-3.2-1b"], "draft with draft-model or eagle3"),
        (["sweep", "--requests", "100"], "give --simulate too"),
        (["sweep", "--spread=1"], "give --simulate too"),
        (["sweep", "--rejection", "in-pass"], "give --simulate too"),
        (["sweep", "--token-budget", "512"], "give --simulate too"),
        (["sweep", "--simulate", "--assume-output-tokens", "5"], "see --output-tokens"),
        (["simulate", "--own-times", "--requests", "5"], "leave it out"),
        (["simulate", "--burstiness", "1"], "give --rate too"),
        (["simulate", "--time-scale", "1"], "give --own-times too"),
        (["rollout", *SERVERS, "--survival", ".8,.6,.4"], "--survival states what is measured"),
        (["rollout", *SERVERS, "--segment-alpha", "chat:.5"], "leave it out"),
        (["rollout", *SERVERS, "--requests", "50"], "--measured-requests says how many are sent"),
        (["rollout", *SERVERS, "--spread", "1"], "leave it out"),
        (["rollout", *SERVERS, "--no-rehearsal"], "leave it out"),
        (["fake-server", "--method", "none", "--survival", ".8,.6,.4"], "--survival does nothing with --method none"),
        (["fake-server", "--method", "none", "--draft-tokens", "4"], "which drafts nothing"),
        (["fake-server", "--method", "none", "--segments", "chat"], "which drafts nothing"),
        (["replay", "demo", "--segment-field", "kind"], "--segment-field is for your own logs"),
        (["simulate", "--segment-rule", "single"], "the demo traffic has its segments"),
        (["simulate", "--concurrency", "32", "--rate", "4"], "not allowed with"),
        (["simulate", "--concurrency", "32", "--own-times"], "not allowed with"),
    ],
)
def test_an_option_that_another_one_makes_idle_is_refused(words: list[str], said: str, paceline: Paceline) -> None:
    """Output that ignores what was asked is taken for the answer to it."""
    answer = paceline(words)
    assert answer.code == 2
    assert said in answer.err


def test_what_was_given_is_told_from_defaults_and_from_values() -> None:
    """A value that looks like a name does not count, nor does what only begins like an option."""
    options = argparse.Namespace(draft=None, draft_tokens=3, seed=1, verb="x")
    assert given_options(options, ["x", "--draft", "seed", "--seed=2", "--draft-tok"]) == {"draft", "seed"}
    assert given_options(options, ["--", "draft-tokens"]) == frozenset()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--target", "dir"], "--target is for drafts of a model"),
        (["--max-tokens", "9"], "--max-tokens is for drafts of a model"),
        (["--method", "eagle3", "--tokenizer", "file"], "--tokenizer does nothing where a model drafts"),
        (["--method", "eagle3", "--ngram-min", "2"], "--ngram-min does nothing with --method eagle3"),
    ],
)
def test_a_replay_takes_only_what_its_method_reads(paceline: Paceline, words: list[str], said: str) -> None:
    """Whoever names a target for prompt lookup believes that its answers were replayed."""
    assert said in paceline(["replay", "demo", *words]).err
