"""How speculation is switched on in vLLM: the --speculative-config JSON and the launch commands of both arms.

The method is always written out: left to itself vLLM guesses it from the draft's name, and up to 0.9.2 falls back to the V0 engine. The
two arms' commands are the same but for speculation.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from paceline.errors import BadInputError, printable
from paceline.servers.batch_ranges import batch_ranges
from paceline.servers.server_start import Drafting, need_draft, need_name
from paceline.servers.vllm.versions import Version, has_flag, max_draft_tokens, need_method, oldest_launchable, written
from paceline.speculation.method import Method
from paceline.verdict import Caution

__all__ = ["batch_size_table", "batch_size_table_cautions", "launch_command", "speculative_config"]

NAMES = {
    Method.DRAFT_MODEL: "draft_model",
    Method.EAGLE: "eagle",
    Method.EAGLE3: "eagle3",
    Method.NGRAM: "ngram",
    Method.SUFFIX: "suffix",
    Method.MTP: "mtp",
}
TABLE_SINCE = (0, 24, 0)
SPECULATION_FLAGS = ("--speculative-config", "--speculative_config", "-sc", "--spec-method", "--spec-model", "--spec-tokens")
OURS = ("--tensor-parallel-size", "-tp", *SPECULATION_FLAGS, "--per-request-spec-decode-metrics")


def speculative_config(drafting: Drafting, version: Version) -> dict[str, Any]:
    """The value of --speculative-config for this method, with every key that this version knows. A tree's depth is the draft length.

    Raises:
        BadInputError: a version before 0.8.3, a method or a table by batch size it lacks, a draft missing or out of place, a draft length
            vLLM does not take.

    """
    _need_launchable(version)
    method = drafting.method
    if method not in NAMES:
        raise BadInputError(f"vLLM drafts chains and has no {method.value}; take eagle3, or SGLang for trees")
    need_method(NAMES[method], version)
    need_draft(drafting)
    table = None if drafting.by_batch is None else _table(drafting, version)
    draft_tokens = drafting.draft_tokens if table is None else max(length for _, _, length in table)
    most = max_draft_tokens(version)
    if not 1 <= draft_tokens <= most:
        raise BadInputError(f"draft length {draft_tokens} is not between 1 and {most}, the longest that vLLM {version} takes")
    config: dict[str, Any] = {"method": NAMES[method], "num_speculative_tokens": draft_tokens}
    if drafting.draft is not None:
        config["model"] = drafting.draft
    if drafting.ngram is not None:
        config |= {"prompt_lookup_min": drafting.ngram.shortest, "prompt_lookup_max": drafting.ngram.longest}
    if table is not None:
        config["num_speculative_tokens_per_batch_size"] = table
    return config


def _table(drafting: Drafting, version: Version) -> list[list[int]]:
    if version.answers < TABLE_SINCE:
        raise BadInputError(
            f"vLLM {version} has no draft length by batch size; {written(TABLE_SINCE)} and later have, and disable_by_batch_size worked "
            "on the V0 engine only"
        )
    assert drafting.by_batch is not None
    return [list(each) for each in drafting.by_batch]


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


def launch_command(target: str, *, speculation: Mapping[str, Any] | None, gpus: int, version: Version, extra: Sequence[str]) -> list[str]:
    """`vllm serve` as an argument list: the speculative arm with a `speculative_config`, the baseline with None.

    From 0.29.0 on the speculative arm reports acceptance per request. `extra` goes to both arms as it is.

    Raises:
        BadInputError: a version before 0.8.3, no GPU, a target that is no name, or an extra argument that is set here.

    """
    _need_launchable(version)
    need_name("target", target)
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
