"""What each engine is started with, arm by arm: the same words but for drafting, without the address, which is the launcher's.

Where acceptance is made up (`synthetic_length`: tokens per step, bonus included), the engine's own knob does it, and its answers are no
text of the target: vLLM `rejection_sample_method` (0.20.0 and later, GPUs only), llama-server `--spec-synth-len`, SGLang
SGLANG_SIMULATE_ACC_LEN.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paceline.errors import BadInputError, printable
from paceline.live.launch import need_no_secret
from paceline.run import Arm
from paceline.servers.llamacpp import config as llamacpp
from paceline.servers.server_start import Drafting, NgramLengths, release
from paceline.servers.sglang import config as sglang
from paceline.servers.vllm import config as vllm
from paceline.servers.vllm.versions import Version, parse_version
from paceline.speculation.method import Method

__all__ = ["ArmCommand", "Launching", "arm_command"]

SET_HERE = ("--host", "--port", "--model", "-m", "--model-path", "--alias", "-a", "--served-model-name", "--spec-type", "--spec-default")
DRAFTING = ("--spec-draft-model", "--model-draft", "-md", "--spec-draft-hf", "-hfd", "--spec-draft-n-max", "--spec-synth-len")
SYNTHETIC_VLLM = "0.20.0"
NEWEST_SGLANG = "0.5.23"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launching:
    """How the servers of a measurement are started.

    Attributes:
        engine: vllm, sglang or llamacpp.
        program: what stands for the engine's program, up to its first own argument; of vLLM up to the model.
        model: what is loaded: a name, a folder, or for llama-server a GGUF file.
        name: the name it is served under.
        method: how the speculative arm drafts.
        draft: its draft, None where the method needs none.
        draft_tokens: tokens drafted per step.
        ngram: the shortest and the longest n-gram that prompt lookup matches.
        gpus: GPUs the target is split over.
        version: whose options are written; only vLLM's differ.
        extra: arguments that both arms get.
        synthetic_length: tokens per step that are made up, None where the target decides.
        ready_s: how long a server may take until it is ready, in seconds.
        end_s: how long it may take to end before it is killed, in seconds.

    """

    engine: str
    program: tuple[str, ...]
    model: str
    name: str
    method: Method
    draft: str | None
    draft_tokens: int
    ngram: tuple[int, int]
    gpus: int
    version: Version
    extra: tuple[str, ...]
    synthetic_length: float | None
    ready_s: float
    end_s: float

    def __post_init__(self) -> None:
        """Reject what would make the arms differ, or acceptance that no draft of that length has.

        Raises:
            BadInputError: an extra argument that is set here or carries a secret; a synthetic length outside 1 to K + 1.

        """
        need_no_secret(self.extra)
        clash = [each for each in self.extra if each.partition("=")[0] in (*SET_HERE, *DRAFTING)]
        if clash:
            raise BadInputError(f"extra argument {printable(clash[0])} is set by paceline; leave it out so that the arms stay comparable")
        if self.synthetic_length is not None and not 1 <= self.synthetic_length <= self.draft_tokens + 1:
            raise BadInputError(
                f"synthetic acceptance length {self.synthetic_length:g} is not within 1 and {self.draft_tokens + 1}: a step gives "
                "its own token at least, and one more than its drafts at most"
            )


@dataclass(frozen=True, slots=True)
class ArmCommand:
    """One arm's words without its address, and what is set in its environment."""

    words: tuple[str, ...]
    environment: Mapping[str, str]


def arm_command(launching: Launching, arm: Arm) -> ArmCommand:
    """How that arm's server is started.

    Raises:
        BadInputError: the engine cannot draft so, or its draft is missing.

    """
    return ENGINES[launching.engine](launching, drafts=arm is Arm.SPECULATIVE)


def _vllm(launching: Launching, *, drafts: bool) -> ArmCommand:
    config = _vllm_speculation(launching) if drafts else None
    extra = ("--served-model-name", launching.name, *launching.extra)
    words = vllm.launch_command(launching.model, speculation=config, gpus=launching.gpus, version=launching.version, extra=extra)
    return ArmCommand((*launching.program, *words[2:]), {})  # the program is as good as `vllm serve`


def _vllm_speculation(launching: Launching) -> dict[str, Any]:
    config = vllm.speculative_config(_drafting(launching), launching.version)
    if launching.synthetic_length is None:
        return config
    if launching.version.answers < parse_version(SYNTHETIC_VLLM):
        raise BadInputError(f"vLLM {launching.version} cannot make acceptance up; {SYNTHETIC_VLLM} and later can")
    return config | {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": launching.synthetic_length}


def _llamacpp(launching: Launching, *, drafts: bool) -> ArmCommand:
    words = (*launching.program, "--model", launching.model, "--alias", launching.name, "--metrics", *launching.extra)
    if not drafts:
        return ArmCommand(words, {})
    if launching.draft is None and launching.method in (Method.DRAFT_MODEL, Method.EAGLE3):
        raise BadInputError(f"llama-server drafts by {launching.method.value} from a GGUF file; give --launch-draft FILE")
    options = llamacpp.speculative_options(_drafting(launching))
    synthetic = () if launching.synthetic_length is None else ("--spec-synth-len", f"{launching.synthetic_length:g}")
    return ArmCommand((*words, *(word for pair in options.items() for word in pair), *synthetic), {})


def _sglang(launching: Launching, *, drafts: bool) -> ArmCommand:
    named = ("--model-path", launching.model, "--served-model-name", launching.name, "--tp-size", str(launching.gpus))
    words = (*launching.program, *named, "--enable-metrics", *launching.extra)
    if not drafts:
        return ArmCommand(words, {})
    options, _ = sglang.speculative_options(_drafting(launching), release("sglang", NEWEST_SGLANG))
    length = launching.synthetic_length
    return ArmCommand(
        (*words, *(word for pair in options.items() for word in pair if word is not None)),
        {} if length is None else {"SGLANG_SIMULATE_ACC_LEN": f"{length:g}"},
    )


def _drafting(launching: Launching) -> Drafting:
    return Drafting(
        method=launching.method,
        draft=launching.draft,
        draft_tokens=launching.draft_tokens,
        tree=None,
        ngram=NgramLengths(*launching.ngram) if launching.method is Method.NGRAM else None,
        by_batch=None,
    )


ENGINES = {"vllm": _vllm, "llamacpp": _llamacpp, "sglang": _sglang}
