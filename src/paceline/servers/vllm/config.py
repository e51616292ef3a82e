"""How speculation is switched on in vLLM: the --speculative-config JSON and the launch commands of both arms.

The method is always written out: left to itself vLLM guesses it from the draft's name, and up to 0.9.2 falls back to the V0 engine. The
two arms' commands are the same but for speculation.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.errors import BadInputError, printable
from paceline.servers.batch_ranges import batch_ranges
from paceline.servers.vllm.versions import Version, has_flag, max_draft_tokens, need_method, oldest_launchable, written
from paceline.speculation.method import Method
from paceline.verdict import Caution

__all__ = ["NgramLengths", "batch_size_table", "batch_size_table_cautions", "launch_command", "rendered", "speculative_config"]

NAMES = {
    Method.DRAFT_MODEL: "draft_model",
    Method.EAGLE: "eagle",
    Method.EAGLE3: "eagle3",
    Method.NGRAM: "ngram",
    Method.SUFFIX: "suffix",
    Method.MTP: "mtp",
}
NEED_DRAFT = (Method.DRAFT_MODEL, Method.EAGLE, Method.EAGLE3)
TAKE_NO_DRAFT = (Method.NGRAM, Method.SUFFIX)
SPECULATION_FLAGS = ("--speculative-config", "--speculative_config", "-sc", "--spec-method", "--spec-model", "--spec-tokens")
OURS = ("--tensor-parallel-size", "-tp", *SPECULATION_FLAGS, "--per-request-spec-decode-metrics")


@dataclass(frozen=True, slots=True)
class NgramLengths:
    """The shortest and the longest n-gram that is looked up."""

    shortest: int
    longest: int

    def __post_init__(self) -> None:
        """Reject lengths below 1 and a shortest above the longest.

        Raises:
            BadInputError: with the lengths.

        """
        if not 1 <= self.shortest <= self.longest:
            raise BadInputError(f"n-gram lengths {self.shortest} to {self.longest} are not 1 <= shortest <= longest")


def speculative_config(
    method: Method, *, draft: str | None, draft_tokens: int, ngram: NgramLengths | None, version: Version
) -> dict[str, str | int]:
    """The value of --speculative-config for this method, with every key that this version knows.

    Raises:
        BadInputError: a version before 0.8.3, a method it lacks, a draft missing or out of place, a draft length vLLM does not take.

    """
    _need_launchable(version)
    if method not in NAMES:
        raise BadInputError(f"vLLM drafts chains and has no {method.value}; take eagle3, or SGLang for trees")
    name = NAMES[method]
    need_method(name, version)
    _need_draft(method, draft)
    most = max_draft_tokens(version)
    if not 1 <= draft_tokens <= most:
        raise BadInputError(f"draft length {draft_tokens} is not between 1 and {most}, the longest that vLLM {version} takes")
    config: dict[str, str | int] = {"method": name, "num_speculative_tokens": draft_tokens}
    if draft is not None:
        config["model"] = draft
    if (ngram is not None) != (method is Method.NGRAM):
        raise BadInputError(f"n-gram lengths belong to method ngram and only to it, not to {method.value}; vLLM's default is 5 for both")
    if ngram is not None:
        config |= {"prompt_lookup_min": ngram.shortest, "prompt_lookup_max": ngram.longest}
    return config


def batch_size_table(best: Mapping[int, int], *, most_requests: int) -> list[list[int]]:
    """The value of num_speculative_tokens_per_batch_size (0.24.0 and later): [first batch size, last, K], both inclusive, from 1 on.

    `best` is the draft length by batch size, 0 for none. There are no gaps; vLLM would fill one with the K before it.

    Raises:
        BadInputError: as `batch_ranges`.

    """
    return [list(each) for each in batch_ranges(best, most_requests=most_requests)]


def batch_size_table_cautions(table: Sequence[Sequence[int]]) -> tuple[Caution, ...]:
    """What is known to go wrong with such a table; nothing where it is one range that drafts.

    Source: vllm-project/vllm#49548 (single stream 59.6 to 50.0 tokens/s; 232 to 24–157 tokens/s at 8 in flight where K = 0 began at 5).
    """
    if len(table) == 1 and table[0][2] > 0:
        return ()
    graphs = Caution(
        "dynamic_k_graphs",
        "a table by batch size makes vLLM's V1 runner capture piecewise CUDA graphs only: 16 % of single-stream speed were lost to it "
        "(vllm#49548); measure concurrency 1 with and without the table",
    )
    off = [first for first, _, length in table if length == 0]
    if not off:
        return (graphs,)
    collapse = Caution(
        "dynamic_k_collapse",
        f"the table switches drafts off from batch size {off[0]} on, and throughput has been seen to collapse to a tenth at such a "
        f"cut-over (vllm#49548, open); measure at {max(1, off[0] - 1)}, {off[0]} and {off[0] + 1} in flight before rollout",
    )
    return graphs, collapse


def _need_launchable(version: Version) -> None:
    oldest = oldest_launchable()
    if version.answers < oldest:
        raise BadInputError(
            f"vLLM {version} switches speculation on by flags that are gone since; commands are written for {written(oldest)} and later"
        )


def _need_draft(method: Method, draft: str | None) -> None:
    if draft is None and method in NEED_DRAFT:
        raise BadInputError(f"method {method.value} needs a draft: the name or folder of its checkpoint")
    if draft is not None and method in TAKE_NO_DRAFT:
        raise BadInputError(f"method {method.value} looks tokens up and takes no draft, not {printable(draft)}")
    if draft is not None:
        _need_name("draft", draft)


def _need_name(kind: str, name: str) -> None:
    if not name.strip() or name.startswith("-") or not name.isprintable():
        raise BadInputError(f"{kind} {printable(name)} is not the name or folder of a model")


def launch_command(
    target: str, *, speculation: Mapping[str, str | int] | None, gpus: int, version: Version, extra: Sequence[str]
) -> list[str]:
    """`vllm serve` as an argument list: the speculative arm with a `speculative_config`, the baseline with None.

    From 0.29.0 on the speculative arm reports acceptance per request. `extra` goes to both arms as it is.

    Raises:
        BadInputError: a version before 0.8.3, no GPU, a target that is no name, or an extra argument that is set here.

    """
    _need_launchable(version)
    _need_name("target", target)
    if gpus < 1:
        raise BadInputError(f"{gpus} GPUs cannot hold a model; give at least 1")
    clash = [each for each in extra if each.split("=")[0].split(".")[0] in OURS]
    if clash:
        raise BadInputError(f"extra argument {printable(clash[0])} is set by paceline; leave it out so that the arms stay comparable")
    command = ["vllm", "serve", target, "--tensor-parallel-size", str(gpus), *extra]
    if speculation is not None:
        command += ["--speculative-config", json.dumps(speculation, ensure_ascii=False)]
        if has_flag("--per-request-spec-decode-metrics", version):
            command += ["--per-request-spec-decode-metrics", "summary"]
    return command


def rendered(command: Sequence[str]) -> str:
    """The command as a POSIX shell takes it, quoted where needed."""
    return shlex.join(command)
