"""What each engine is started with: the same words in both arms but for drafting."""

from dataclasses import replace

import pytest

from paceline.errors import BadInputError
from paceline.jobs.arm_commands import Launching, arm_command
from paceline.run import Arm
from paceline.servers.vllm.versions import vllm_version
from paceline.speculation.method import Method

LLAMA = Launching(
    engine="llamacpp",
    program=("llama-server",),
    model="target.gguf",
    name="target",
    method=Method.DRAFT_MODEL,
    draft="draft.gguf",
    draft_tokens=4,
    ngram=(2, 5),
    gpus=1,
    version=vllm_version("0.32.0"),
    extra=("--ctx-size", "4096"),
    synthetic_length=None,
    ready_s=60.0,
    end_s=5.0,
)
SGLANG = replace(LLAMA, engine="sglang", program=("python3", "-m", "sglang.launch_server"), model="org/target", draft="org/draft", gpus=2)
VLLM = replace(SGLANG, engine="vllm", program=("vllm", "serve"), method=Method.NGRAM, draft=None)


LLAMA_DRAFT = "--spec-draft-model draft.gguf --spec-draft-ngl all"
LLAMA_LENGTH = "--spec-draft-n-max 4 --spec-draft-n-min 0 --spec-draft-p-min 0"


def drafting(launching: Launching) -> str:
    """What the speculative arm has more."""
    baseline, speculative = (arm_command(launching, arm).words for arm in Arm)
    assert speculative[: len(baseline)] == baseline
    return " ".join(speculative[len(baseline) :])


@pytest.mark.parametrize(
    ("launching", "more"),
    [
        (
            LLAMA,
            f"--spec-type draft-simple {LLAMA_DRAFT} {LLAMA_LENGTH}",
        ),
        (
            replace(LLAMA, synthetic_length=2.5),
            f"--spec-type draft-simple {LLAMA_DRAFT} {LLAMA_LENGTH} --spec-synth-len 2.5",
        ),
        (
            replace(LLAMA, method=Method.EAGLE3),
            f"--spec-type draft-eagle3 {LLAMA_DRAFT} {LLAMA_LENGTH}",
        ),
        (
            replace(LLAMA, method=Method.MTP, draft=None),
            f"--spec-type draft-mtp {LLAMA_LENGTH}",
        ),
        (
            replace(LLAMA, method=Method.NGRAM, draft=None),
            "--spec-type ngram-simple --spec-ngram-simple-size-n 2 --spec-ngram-simple-size-m 4 --spec-ngram-simple-min-hits 1",
        ),
        (
            replace(SGLANG, method=Method.EAGLE3),
            "--speculative-algorithm EAGLE3 --speculative-draft-model-path org/draft --speculative-num-steps 4 --speculative-eagle-topk 1 "
            "--speculative-num-draft-tokens 5",
        ),
        (
            replace(SGLANG, method=Method.NGRAM, draft=None),
            "--speculative-algorithm NGRAM --speculative-ngram-max-bfs-breadth 1 --speculative-num-draft-tokens 5",
        ),
        (
            VLLM,
            '--speculative-config {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 2, "prompt_lookup_max": 5} '
            "--per-request-spec-decode-metrics summary",
        ),
        (
            replace(VLLM, method=Method.DRAFT_MODEL, draft="org/draft", synthetic_length=3.0),
            '--speculative-config {"method": "draft_model", "num_speculative_tokens": 4, "model": "org/draft", '
            '"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 3.0} --per-request-spec-decode-metrics summary',
        ),
    ],
)
def test_the_speculative_arm_has_the_baselines_words_and_its_drafting(launching: Launching, more: str) -> None:
    """A difference beside drafting is measured as a speed-up."""
    assert drafting(launching) == more


@pytest.mark.parametrize(
    ("launching", "words"),
    [
        (LLAMA, "llama-server --model target.gguf --alias target --metrics --ctx-size 4096"),
        (
            SGLANG,
            "python3 -m sglang.launch_server --model-path org/target --served-model-name target --tp-size 2 --enable-metrics "
            "--ctx-size 4096",
        ),
        (VLLM, "vllm serve org/target --tensor-parallel-size 2 --served-model-name target --ctx-size 4096"),
    ],
)
def test_metrics_are_on_and_the_name_is_ours(launching: Launching, words: str) -> None:
    """Without them nothing tells whether it drafts; with a folder's path as its name every file would hold that path."""
    assert " ".join(arm_command(launching, Arm.BASELINE).words) == words


def test_sglang_makes_acceptance_up_by_its_environment_in_one_arm_only() -> None:
    """The baseline would not care, and a reader would."""
    told = replace(SGLANG, method=Method.EAGLE3, synthetic_length=2.0)
    assert [dict(arm_command(told, arm).environment) for arm in Arm] == [{}, {"SGLANG_SIMULATE_ACC_LEN": "2"}]


@pytest.mark.parametrize(
    ("launching", "said"),
    [
        (replace(LLAMA, method=Method.SUFFIX, draft=None), "llama.cpp has no suffix"),
        (replace(LLAMA, draft=None), "give --launch-draft FILE"),
        (replace(SGLANG, method=Method.SUFFIX, draft=None), "SGLang has no suffix"),
        (replace(VLLM, method=Method.EAGLE3), "needs a draft"),
    ],
)
def test_what_an_engine_cannot_do_is_refused(launching: Launching, said: str) -> None:
    """The server would refuse it too, minutes later, or ignore it."""
    with pytest.raises(BadInputError, match=said):
        arm_command(launching, Arm.SPECULATIVE)
