"""How speculation is switched on in TensorRT-LLM: the YAML of `trtllm-serve --config` for both arms.

Both files ask for iteration statistics and per-request metrics, without which acceptance cannot be measured. Field names follow the
PyTorch backend's llm_args; from 1.3 on the draft is `speculative_model` and the type of a draft model `Draft_Target`, before it
`speculative_model_dir` and `DraftTarget`. That was read from the source and not run.
"""

from collections.abc import Mapping
from typing import Any

from paceline.errors import BadInputError
from paceline.servers.server_start import Drafting, Release, ServerStart, need_draft, need_name
from paceline.servers.tensorrt_llm.schedule import schedule_of_ranges
from paceline.servers.yaml_text import yaml_text
from paceline.speculation.method import Method

__all__ = ["server_start", "speculative_config", "speculative_notes"]

TYPES = {Method.EAGLE3: "Eagle3", Method.MTP: "MTP", Method.NGRAM: "NGram", Method.DRAFT_MODEL: "Draft_Target", Method.SUFFIX: "SA"}
OLDER_TYPES = {Method.EAGLE3: "Eagle", Method.DRAFT_MODEL: "DraftTarget"}
NEWER = (1, 3, 0)
LIMITS = {"--max-num-seqs": "max_batch_size", "--max-num-batched-tokens": "max_num_tokens"}
METRICS = {"enable_iter_perf_stats": True, "return_perf_metrics": True, "perf_metrics_max_requests": 10_000}
NO_OVERLAP = (Method.NGRAM, Method.DRAFT_MODEL)


def speculative_config(drafting: Drafting, version: Release) -> dict[str, Any]:
    """The value of `speculative_config` in the YAML.

    Raises:
        BadInputError: a method this version lacks, a tree for another method than eagle3, a table that drafts nothing at the smallest
            batch, or a draft missing or out of place.

    """
    method, newer = drafting.method, version.parts >= NEWER
    if method not in TYPES or (method is Method.SUFFIX and not newer):
        known = ", ".join(each.value for each in TYPES if newer or each is not Method.SUFFIX)
        raise BadInputError(f"TensorRT-LLM {version} has no {method.value} on its PyTorch backend; it drafts by {known}")
    need_draft(drafting)
    config: dict[str, Any] = {"decoding_type": TYPES[method] if newer else OLDER_TYPES.get(method, TYPES[method])}
    config |= _length(drafting, newer=newer)
    if drafting.draft is not None:
        config["speculative_model" if newer else "speculative_model_dir"] = drafting.draft
    if drafting.ngram is not None:
        config |= {"max_matching_ngram_size": drafting.ngram.longest, "is_keep_all": True, "is_use_oldest": True, "is_public_pool": True}
    if drafting.tree is not None:
        config |= _tree(drafting, newer=newer)
    return config


def _length(drafting: Drafting, *, newer: bool) -> dict[str, Any]:
    name = "num_nextn_predict_layers" if drafting.method is Method.MTP and not newer else "max_draft_len"
    if drafting.by_batch is None:
        return {name: drafting.draft_tokens}
    schedule = schedule_of_ranges(drafting.by_batch)
    if schedule is None:
        raise BadInputError("a draft_len_schedule has to draft at the smallest batch size; give it a length above 0, or take another table")
    return {name: schedule[min(schedule)], "draft_len_schedule": schedule}


def _tree(drafting: Drafting, *, newer: bool) -> dict[str, Any]:
    tree = drafting.tree
    if drafting.method is not Method.EAGLE3 or not newer or drafting.by_batch is not None:
        raise BadInputError("TensorRT-LLM drafts trees with eagle3 from 1.3 on, without a table by batch size; leave out the tree")
    assert tree is not None
    return {"use_dynamic_tree": True, "dynamic_tree_max_topK": tree.topk, "max_total_draft_tokens": tree.nodes}


def server_start(
    target: str,
    *,
    speculation: Mapping[str, Any] | None,
    method: Method,
    gpus: int,
    memory_share: float,
    limits: Mapping[str, int],
) -> ServerStart:
    """One arm: the speculative one with a `speculative_config` for `method`, the baseline with None.

    `memory_share` is of the memory that is free once the weights are loaded; `limits` are requests and tokens by vLLM's option.

    Raises:
        BadInputError: the target is no name.

    """
    need_name("target", target)
    document: dict[str, Any] = {
        "backend": "pytorch",
        "tensor_parallel_size": gpus,
        **{LIMITS[name]: value for name, value in limits.items()},
        "kv_cache_config": {"free_gpu_memory_fraction": memory_share},
        **METRICS,
    }
    name = "baseline.yaml"
    if speculation is not None:
        name = "speculative.yaml"
        document |= {"disable_overlap_scheduler": True} if method in NO_OVERLAP else {}
        document["speculative_config"] = dict(speculation)
    return ServerStart(engine="tensorrt_llm", command=("trtllm-serve", target, "--config", name), files={name: yaml_text(document)})


def speculative_notes(drafting: Drafting) -> tuple[str, ...]:
    """What to know before both arms are run."""
    notes = ["acceptance is at /prometheus/metrics and, per request, at /perf_metrics; /metrics holds JSON statistics of iterations"]
    if drafting.method in NO_OVERLAP:
        notes.append("this method needs disable_overlap_scheduler, which the baseline keeps: part of what speculation costs here")
    if drafting.method is Method.SUFFIX:
        notes.append("SA looks up in a suffix automaton of the request, which is what suffix decoding does without its cache of others")
    return tuple(notes)
