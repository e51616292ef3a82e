"""How speculation is switched on in SGLang: its --speculative-* options and both arms' commands.

SGLang counts the verified tokens with the one before the drafts, so K drafts are K + 1 draft tokens. The three numbers are all given: with
some left out it takes its own. It lowers --max-running-requests to 48 while speculating where that is not given, so both arms give it.
"""

import json
from collections.abc import Mapping

from paceline.errors import BadInputError
from paceline.servers.server_start import Drafting, Release, ServerStart, need_draft, need_name
from paceline.servers.sglang.adaptive import adaptive_of_ranges, start_steps
from paceline.speculation.method import Method

__all__ = ["server_start", "speculative_notes", "speculative_options"]

ALGORITHMS = {
    Method.EAGLE: ("EAGLE", (0, 4, 3)),
    Method.EAGLE2: ("EAGLE", (0, 4, 3)),
    Method.EAGLE3: ("EAGLE3", (0, 4, 6)),
    Method.DRAFT_MODEL: ("STANDALONE", (0, 5, 2)),
    Method.NGRAM: ("NGRAM", (0, 5, 3)),
    Method.MTP: ("NEXTN", (0, 4, 3)),
}
LIMITS = {"--max-num-seqs": "--max-running-requests", "--max-num-batched-tokens": "--chunked-prefill-size"}
ADAPTIVE_SINCE, TRIE_SINCE, DETAILS_SINCE, PAGED_TREES_SINCE = (0, 5, 11), (0, 5, 10), (0, 5, 19), (0, 5, 14)
ADAPTIVE_FILE = "adaptive.json"


def speculative_options(drafting: Drafting, version: Release) -> tuple[dict[str, str | None], dict[str, str]]:
    """The options of the speculative arm (None for one without a value), and the files that they name.

    Raises:
        BadInputError: a method or a table this version lacks, or a draft missing or out of place.

    """
    if drafting.method not in ALGORITHMS:
        raise BadInputError(f"SGLang has no {drafting.method.value} decoding; ngram is what it looks up with")
    algorithm, since = ALGORITHMS[drafting.method]
    if version.parts < since:
        raise BadInputError(f"method {drafting.method.value} works in SGLang from {'.'.join(map(str, since))} on, not in {version}")
    need_draft(drafting)
    options: dict[str, str | None] = {"--speculative-algorithm": algorithm}
    if drafting.draft is not None:
        options["--speculative-draft-model-path"] = drafting.draft
    if drafting.by_batch is not None:
        return _adaptive(drafting, options, version)
    tree = drafting.tree
    depth, topk, nodes = (drafting.draft_tokens, 1, drafting.draft_tokens) if tree is None else (tree.depth, tree.topk, tree.nodes)
    if drafting.method is Method.NGRAM:
        return options | _lookup(drafting, version, topk=topk) | {"--speculative-num-draft-tokens": str(nodes + 1)}, {}
    return options | _numbers(depth, topk, nodes), {}


def _numbers(depth: int, topk: int, nodes: int) -> dict[str, str | None]:
    return {
        "--speculative-num-steps": str(depth),
        "--speculative-eagle-topk": str(topk),
        "--speculative-num-draft-tokens": str(nodes + 1),
    }


def _lookup(drafting: Drafting, version: Release, *, topk: int) -> dict[str, str | None]:
    assert drafting.ngram is not None
    breadth: dict[str, str | None] = {"--speculative-ngram-max-bfs-breadth": str(topk)}
    if version.parts >= TRIE_SINCE:
        return breadth
    return breadth | {
        "--speculative-ngram-min-match-window-size": str(drafting.ngram.shortest),
        "--speculative-ngram-max-match-window-size": str(drafting.ngram.longest),
    }


def _adaptive(drafting: Drafting, options: dict[str, str | None], version: Release) -> tuple[dict[str, str | None], dict[str, str]]:
    if version.parts < ADAPTIVE_SINCE or drafting.method not in (Method.EAGLE, Method.EAGLE3) or drafting.tree is not None:
        raise BadInputError(
            f"draft lengths by batch size need SGLang 0.5.11 or later, method eagle or eagle3 and no tree; {version} with "
            f"{drafting.method.value} drafts one length"
        )
    assert drafting.by_batch is not None
    config = adaptive_of_ranges([drafting.by_batch])
    steps = start_steps(config)
    if steps == 0:
        raise BadInputError("the table drafts nothing at any batch size; leave speculation out")
    adaptive: dict[str, str | None] = {"--speculative-adaptive": None, "--speculative-adaptive-config": ADAPTIVE_FILE}
    return options | _numbers(steps, 1, steps) | adaptive, {ADAPTIVE_FILE: json.dumps(config, indent=2) + "\n"}


def server_start(
    target: str,
    *,
    speculation: tuple[Mapping[str, str | None], Mapping[str, str]] | None,
    gpus: int,
    memory_share: float,
    limits: Mapping[str, int],
    quantization: str | None,
) -> ServerStart:
    """One arm: the speculative one with `speculative_options`, the baseline with None. Both export the acceptance gauges.

    Args:
        target: name or folder of the model.
        speculation: options and the files that they name.
        gpus: GPUs the target is split over.
        memory_share: share of GPU memory for weights and KV cache.
        limits: requests and tokens by vLLM's option.
        quantization: of weights that are quantised at load, None for none.

    Raises:
        BadInputError: the target is no name.

    """
    need_name("target", target)
    options: dict[str, str | None] = {
        "--model-path": target,
        "--tp-size": str(gpus),
        "--mem-fraction-static": f"{memory_share:g}",
        **({} if quantization is None else {"--quantization": quantization}),
        **{LIMITS[name]: str(value) for name, value in limits.items()},
        "--enable-metrics": None,
        **({} if speculation is None else speculation[0]),
    }
    words = [word for name, value in options.items() for word in (name, value) if word is not None]
    return ServerStart(
        engine="sglang",
        command=("python3", "-m", "sglang.launch_server", *words),
        files={} if speculation is None else dict(speculation[1]),
    )


def speculative_notes(drafting: Drafting, version: Release) -> tuple[str, ...]:
    """What to know before both arms are run."""
    notes = [
        "both arms set --max-running-requests: left out, SGLang lowers it to 48 in the speculative arm only, and the arms do not compare",
        "the acceptance gauges move once in 40 decode iterations: measure under load, for a minute or more"
        + ("; per request ask with return_spec_tokens_details" if version.parts >= DETAILS_SINCE else ""),
    ]
    if drafting.method is Method.NGRAM and version.parts >= TRIE_SINCE:
        notes.append("SGLang matches as far back as its trie goes; shortest and longest n-gram are not options of this version")
    if drafting.tree is not None and drafting.tree.topk > 1:
        backends = "flashinfer, fa3 or triton" if version.parts >= PAGED_TREES_SINCE else "flashinfer"
        notes.append(f"a tree needs --page-size 1, or the attention backend {backends}")
    return tuple(notes)
