"""The commands that switch speculation on in vLLM are right for the version, and both arms are alike."""

import json
import shlex
from typing import Any

import pytest

from paceline.errors import BadInputError
from paceline.servers.batch_ranges import BatchRange
from paceline.servers.server_start import Drafting, NgramLengths, rendered
from paceline.servers.vllm.config import launch_command, speculative_config
from paceline.servers.vllm.versions import vllm_version
from paceline.speculation.method import Method

TARGET = "meta-llama/Llama-3.3-70B-Instruct"
DRAFT = "yuhuili/EAGLE3-LLaMA3.3-Instruct-70B"
V32 = vllm_version("0.32.0")


def config(
    method: Method = Method.EAGLE3,
    *,
    draft: str | None = None,
    draft_tokens: int = 3,
    ngram: NgramLengths | None = None,
    by_batch: tuple[BatchRange, ...] | None = None,
    version: str = "0.32.0",
) -> dict[str, Any]:
    asked = Drafting(
        method=method,
        draft=draft,
        draft_tokens=draft_tokens,
        tree=None,
        ngram=ngram,
        by_batch=by_batch,
    )
    return speculative_config(asked, vllm_version(version))


def test_the_method_is_always_written_out() -> None:
    """Whoever relies on vLLM's guess gets the V0 engine on 0.9.2 and a plain draft model later."""
    assert config(draft=DRAFT) == {"method": "eagle3", "num_speculative_tokens": 3, "model": DRAFT}
    assert config(Method.DRAFT_MODEL, draft="d")["method"] == "draft_model"
    assert config(Method.EAGLE, draft="d", version="0.8.3")["method"] == "eagle"
    assert config(Method.SUFFIX) == {"method": "suffix", "num_speculative_tokens": 3}
    assert config(Method.MTP) == {"method": "mtp", "num_speculative_tokens": 3}
    assert config(Method.MTP, draft="d")["model"] == "d"


def test_ngram_lengths_are_always_given() -> None:
    """Whoever leaves them out gets 5 and 5, which rarely matches."""
    ngram = config(Method.NGRAM, draft_tokens=5, ngram=NgramLengths(shortest=2, longest=4))
    assert ngram == {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 2, "prompt_lookup_max": 4}
    with pytest.raises(BadInputError, match="n-gram lengths belong to method ngram"):
        config(Method.NGRAM)
    with pytest.raises(BadInputError, match="not to suffix"):
        config(Method.SUFFIX, ngram=NgramLengths(shortest=2, longest=4))


@pytest.mark.parametrize(("shortest", "longest"), [(0, 4), (5, 4)])
def test_ngram_lengths_that_match_nothing_are_refused(shortest: int, longest: int) -> None:
    """Whoever swaps them: vLLM would refuse at its start."""
    with pytest.raises(BadInputError):
        NgramLengths(shortest=shortest, longest=longest)


@pytest.mark.parametrize("version", ["0.7.3", "0.8.2"])
def test_versions_before_the_json_form_are_refused(version: str) -> None:
    """Whoever runs 0.8.1: its flags are gone in all later versions, and ours are unknown to it."""
    with pytest.raises(BadInputError, match=r"0\.8\.3 and later"):
        config(draft=DRAFT, version=version)
    with pytest.raises(BadInputError, match=r"0\.8\.3 and later"):
        launch_command(TARGET, speculation=None, gpus=1, version=vllm_version(version), extra=())


def test_a_method_that_the_version_lacks_is_refused() -> None:
    """Whoever has 0.12: a draft model is accepted nowhere there."""
    with pytest.raises(BadInputError, match=r"from 0\.15\.0 on"):
        config(Method.DRAFT_MODEL, draft="d", version="0.12.0")
    with pytest.raises(BadInputError, match="SGLang for trees"):
        config(Method.EAGLE2, draft="d")


def test_a_draft_is_given_where_it_belongs() -> None:
    """Whoever forgets the head or gives one to a lookup: the server would start something else or nothing."""
    with pytest.raises(BadInputError, match="needs a draft"):
        config()
    with pytest.raises(BadInputError, match="takes no draft"):
        config(Method.SUFFIX, draft=DRAFT)
    with pytest.raises(BadInputError, match="not the name or folder"):
        config(draft="--trust-remote-code")


@pytest.mark.parametrize(("draft_tokens", "version"), [(0, "0.32.0"), (129, "0.32.0"), (33, "0.10.2")])
def test_a_draft_length_that_ends_in_an_assertion_is_refused(draft_tokens: int, version: str) -> None:
    """Whoever drafts 33 tokens on 0.10.2: the server dies while serving, not at its start."""
    with pytest.raises(BadInputError, match="is not between 1 and"):
        config(draft=DRAFT, draft_tokens=draft_tokens, version=version)
    assert config(draft=DRAFT, draft_tokens=33, version="0.11.0")["num_speculative_tokens"] == 33


def test_draft_lengths_by_batch_size_are_a_table_from_0_24_on() -> None:
    """Whoever has 0.18 and a table: nothing reads it there, and the server drafts one length at every load."""
    table = config(draft=DRAFT, by_batch=((1, 5, 5), (6, 64, 2), (65, 256, 0)), version="0.24.0")
    assert table["num_speculative_tokens_per_batch_size"] == [[1, 5, 5], [6, 64, 2], [65, 256, 0]]
    assert table["num_speculative_tokens"] == 5
    with pytest.raises(BadInputError, match="has no draft length by batch size"):
        config(draft=DRAFT, by_batch=((1, 5, 5), (6, 64, 0)), version="0.23.0")
    with pytest.raises(BadInputError, match="draft length 0"):
        config(draft=DRAFT, by_batch=((1, 64, 0),))


def test_the_arms_are_alike_but_for_speculation() -> None:
    """Whoever compares two servers: any other difference would be counted as the drafts'."""
    speculation = config(draft=DRAFT)
    extra = ("--max-model-len", "8192")
    baseline = launch_command(TARGET, speculation=None, gpus=4, version=V32, extra=extra)
    speculative = launch_command(TARGET, speculation=speculation, gpus=4, version=V32, extra=extra)
    assert baseline == ["vllm", "serve", TARGET, "--tensor-parallel-size", "4", "--max-model-len", "8192"]
    assert speculative[: len(baseline)] == baseline
    flag, value, *per_request = speculative[len(baseline) :]
    assert flag == "--speculative-config"
    assert json.loads(value) == speculation
    assert per_request == ["--per-request-spec-decode-metrics", "summary"]


def test_before_0_29_there_is_no_per_request_flag() -> None:
    """Whoever runs 0.28: an unknown flag stops the server at its start."""
    command = launch_command(TARGET, speculation=config(draft=DRAFT), gpus=1, version=vllm_version("0.28.0"), extra=())
    assert "--per-request-spec-decode-metrics" not in command


def test_a_rendered_command_survives_the_shell() -> None:
    """Whoever has quotes in a path: what the shell hands over is what was meant."""
    command = launch_command(TARGET, speculation=config(draft='it\'s $HOME `x` "y"'), gpus=1, version=V32, extra=())
    assert shlex.split(rendered(command)) == command


@pytest.mark.parametrize("target", ["", " ", "--host=0.0.0.0", "a\nb"])
def test_a_target_that_is_no_name_is_refused(target: str) -> None:
    """Whoever passes a stray option as the model: it must not change how the server listens."""
    with pytest.raises(BadInputError, match="target"):
        launch_command(target, speculation=None, gpus=1, version=V32, extra=())


@pytest.mark.parametrize(
    "extra", ["-tp", "--tensor-parallel-size=8", "--speculative-config", "-sc", "--speculative-config.method", "--spec-method"]
)
def test_an_extra_that_we_set_is_refused(extra: str) -> None:
    """Whoever adds speculation to both arms by hand: there would be no baseline."""
    with pytest.raises(BadInputError, match="set by paceline"):
        launch_command(TARGET, speculation=None, gpus=1, version=V32, extra=(extra, "x"))


def test_a_server_needs_a_gpu() -> None:
    """Whoever writes --gpus 0: said before the launch."""
    with pytest.raises(BadInputError, match="0 GPUs"):
        launch_command(TARGET, speculation=None, gpus=0, version=V32, extra=())
