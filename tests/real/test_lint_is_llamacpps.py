"""`lint --engine llamacpp` against a real llama-server: whether it takes the options, and whether it then drafts.

The server reads its options before it looks for the model, so with a model that does not exist each answer takes some 25 ms: it complains
of an option, or of the model. The options below are taken alone and in pairs. What is only seen when the model is loaded (made-up
acceptance that does not fit) or when a request is answered (a server that says nothing and does not draft) has a few servers of its own.
"""

import itertools
import random
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from paceline.files.served_config import read_served_configs
from paceline.servers.lint import Severity
from paceline.servers.llamacpp.lint import lint, llamacpp_version
from tests.real.servers import complete, free_port, healthy

BUILD = "b11434"  # what scripts/install_llamacpp builds
ABSENT = "absent.gguf"
READY_S = 120.0
# what keeps the server from reading on; every other error is of a server that starts
REFUSING = {"unknown_flag", "bad_value", "removed", "not_yet"}
COMPLAINT = re.compile(r"error while handling (argument|environment)|invalid argument:")

GOOD = (
    "--spec-type draft-simple", "--spec-type ngram-mod", "--spec-type draft-simple,ngram-mod", "--spec-type none", "-md absent.gguf",
    "--model-draft absent.gguf", "--spec-draft-model absent.gguf", "--spec-draft-n-max 8", "--spec-draft-n-max 0", "--spec-draft-n-max 4x",
    "--spec_draft_n_max 8", "--spec-draft-n-min -1", "--spec-draft-n-min 8", "--spec-draft-p-min 0.75", "--spec-draft-p-min 1.5",
    "--draft-p-min .5", "--spec-draft-p-split 3", "--spec-draft-sampling greedy", "--no-spec-draft-backend-sampling", "-ctkd q8_0",
    "--spec-draft-type-v f16", "-td 2", "--spec-draft-prio 3", "--spec-draft-poll 1", "--spec-synth-len 2.5", "--spec-synth-rates .9,.8,.7",
    "--spec-ngram-mod-n-match 1024", "--spec-ngram-mod-n-min 0", "--spec-ngram-mod-n-max 64", "--spec-ngram-simple-size-n 3",
    "--spec-ngram-map-k-min-hits 2", "--spec-ngram-map-k4v-size-m 8", "--spec-default", "-np 4", "-np -1", "--metrics", "--no-slots",
    "-fa on", "-ngl auto", "-c 512", "--jinja", "--temp 0", "-cmoed", "-ncmoed 2", "-devd none", "LLAMA_ARG_SPEC_DRAFT_N_MAX=5",
)  # fmt: skip
BAD = (
    "--spec-type eagle3", "--spec-type draft-simpel", "--spec-type draft-simple,x", "--spec-type ''", "--draft-max 8", "--draft 8",
    "--draft-n 8", "--draft-min 2", "--draft-n-min 2", "--spec-ngram-size-n 4", "--spec-ngram-size-m 4", "--spec-ngram-min-hits 1",
    "--spec-draft-n-max abc", "--spec-draft-n-max -1", "--spec-draft-n-max 99999999999", "--spec-draft-n-max", "--spec-draft-n-max=8",
    "--spec-draft-nmax 8", "--spec-draft-p-min x", "--spec-draft-sampling beam", "-ctkd q9", "--spec-draft-type-v int8", "-td x",
    "--spec-draft-prio 9", "--spec-draft-prio -1", "-ncmoed -1", "--spec-ngram-mod-n-match 0", "--spec-ngram-mod-n-match 1025",
    "--spec-ngram-mod-n-min -1", "--spec-ngram-mod-n-max 3000", "--spec-ngram-simple-size-n 0", "--spec-ngram-simple-size-m 0",
    "--spec-ngram-map-k-min-hits 0", "--spec-ngram-map-k4v-size-m 1025", "-np x", "-np 0", "--metrics 1", "-fa", "-fa maybe", "--temp=1",
    "-md", "--ctx-size-draft 512", "--draft-model absent.gguf", "--speculative-config x", "LLAMA_ARG_DRAFT_MAX=8",
    "LLAMA_ARG_SPEC_DRAFT_N_MAX=-1", "LLAMA_ARG_SPEC_TYPE=eagle3",
)  # fmt: skip


def command_of(options: Sequence[str], server: Path, *, model: str) -> str:
    """The command line with these options, and the variables among them, in front."""
    variables = [each for each in options if each.startswith("LLAMA_ARG_")]
    rest = [each for each in options if each not in variables]
    plain = [str(server), "-m", model, "--port", str(free_port()), "-t", "1"]
    return " ".join([*variables, shlex.join(plain), *rest])


def server_refuses(command: str) -> bool:
    """Whether the real server complains of an option; else it complains that there is no such model."""
    said = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL)
    assert said.returncode == 1
    told = said.stdout + said.stderr
    refused = COMPLAINT.search(told) is not None
    assert refused or ABSENT in told, told[-500:]
    return refused


def codes_of(command: str) -> set[str]:
    """What lint calls an error."""
    (config,) = read_served_configs(command, engine=None)
    return {each.code for each in lint(config, llamacpp_version(BUILD)) if each.severity is Severity.ERROR}


def test_lint_and_the_server_refuse_the_same_options(llama_server: Path) -> None:
    """Whoever lints before a rollout: a server that does not start was called clean, or a good configuration was kept back."""
    chance = random.Random(1)
    pairs = chance.sample(list(itertools.combinations((*GOOD, *BAD), 2)), 90)
    both = [each for each in pairs if each[0].split()[0] != each[1].split()[0]]
    cases = [*((each,) for each in (*GOOD, *BAD)), *itertools.pairwise(GOOD), *both]
    wrong, refused = [], 0
    for options in cases:
        command = command_of(options, llama_server, model=ABSENT)
        really = server_refuses(command)
        refused += really
        if bool(codes_of(command) & REFUSING) != really:
            wrong.append(f"{' '.join(options)}: the server {'refuses' if really else 'takes'} it, lint says {codes_of(command)}")
    assert len(cases) > 180
    assert 0.4 < refused / len(cases) < 0.8
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "options",
    [
        "--spec-type draft-simple -md {model} --spec-synth-len 9",
        "--spec-type draft-simple -md {model} --spec-synth-len 0.5",
        "--spec-type draft-simple -md {model} --spec-synth-rates 0.9,0.8",
        "--spec-type draft-simple -md {model} --spec-synth-rates 0.7,0.8,0.9",
        "--spec-type draft-simple -md {model} --spec-synth-rates 1.7,0.8,0.6",
        "--spec-synth-len 2.5",
    ],
)
def test_made_up_acceptance_that_does_not_fit_ends_the_server(llama_server: Path, llama_gguf: Path, options: str) -> None:
    """Whoever runs a benchmark by night finds a server that exited when it had loaded the model."""
    command = command_of([options.format(model=llama_gguf)], llama_server, model=str(llama_gguf))
    said = subprocess.run(["sh", "-c", command], capture_output=True, timeout=READY_S, check=False, stdin=subprocess.DEVNULL)
    assert said.returncode == 1
    assert "synthetic_out_of_range" in codes_of(command)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("-md {model}", "not_switched_on"),
        ("--spec-type draft-simple", "draft_missing"),
        ("--spec-type none,ngram-simple --spec-ngram-simple-size-n 3 --spec-ngram-simple-size-m 8", "not_switched_on"),
        ("--spec-type ngram-simple,none --spec-ngram-simple-size-n 3 --spec-ngram-simple-size-m 8", "not_switched_on"),
        ("--spec-type draft-simple -md {model} --spec-draft-n-min 8 --spec-draft-n-max 4", "no_drafts"),
        ("--spec-type draft-simple -md {model} --spec-draft-p-min 1.5", "no_drafts"),
        ("--spec-type draft-simple -md {model}", None),
        ("--spec-type draft-simple -md {model} --spec-draft-n-max 0", None),
        ("--spec-type ngram-simple --spec-ngram-simple-size-n 3 --spec-ngram-simple-size-m 8", None),
    ],
)
def test_a_server_that_starts_and_does_not_draft_is_called_an_error(
    llama_server: Path, llama_gguf: Path, tmp_path: Path, options: str, code: str | None
) -> None:
    """Whoever switched speculation on and pays for a draft model that nobody asks: health is ok and the log is silent."""
    port = free_port()
    words = options.format(model=llama_gguf).split()
    command = [str(llama_server), "-m", str(llama_gguf), "--port", str(port), "-t", "1", "-c", "512", "--no-warmup", *words]
    with healthy(command, port=port, log=tmp_path / "server.log", ready_s=READY_S) as url:
        timings = complete(url, "one two three one two three one two three one two", model="m", tokens=24)["timings"]
    assert bool(timings.get("draft_n")) == (code is None), timings
    assert codes_of(shlex.join(command)) == (set() if code is None else {code})
