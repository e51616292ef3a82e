"""What TensorRT-LLM does with a configuration: the YAML of trtllm-serve --config, of which `speculative_config` is one block.

Notation: K = max_draft_len, N = max_total_draft_tokens, k = dynamic_tree_max_topK:

    chain          N = K
    dynamic tree   K ≤ N ≤ k K
    draft_len_schedule   {largest batch size: draft length}; the length at the smallest is K, none is above it

Source: llmapi/llm_args.py and the documentation (data/servers/tensorrt_llm.toml); read, not run.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from paceline.data.tables import table
from paceline.errors import is_count, printable
from paceline.servers.lint import ConfigFinding, Severity, worst_first
from paceline.servers.lint_tables import (
    Release,
    combination_findings,
    finding,
    method_findings,
    number_at,
    open_findings,
    parse_release,
    plain_server,
    value_fault,
)
from paceline.servers.served_config import ServedConfig, left_open

__all__ = ["lint", "tensorrt_llm_version"]

TYPE, BLOCK = "decoding_type", "speculative_config"
MODELS = ("speculative_model", "speculative_model_dir")


def tensorrt_llm_version(text: str) -> Release:
    """The version as it compares, with a caution where it was not read.

    Raises:
        BadInputError: `text` is no version.

    """
    return parse_release(text, read=table("servers/tensorrt_llm")["read"], engine="TensorRT-LLM")


def lint(config: ServedConfig, release: Release) -> tuple[ConfigFinding, ...]:
    """What TensorRT-LLM makes of the configuration, worst first; empty where nothing is to be said."""
    rows = table("servers/tensorrt_llm")
    block = config.speculative
    if block is None:
        return worst_first((*_no_block(config), *open_findings(config)))
    named = block.get(TYPE)
    method = named if isinstance(named, str) and not left_open(named) else None
    found: list[ConfigFinding] = []
    if named is None or (method is None and not left_open(named)):
        message = (
            f"{TYPE} is {printable(named)}; it says how to draft" if TYPE in block else f"{BLOCK} has no {TYPE}, which says how to draft"
        )
        found.append(finding(Severity.ERROR, "method_missing", TYPE, message, remedy=f"set {TYPE}: Eagle3, or another type", row=None))
    if method is not None:
        found += method_findings(method, rows["methods"], release, field=TYPE, engine="TensorRT-LLM")
        found += _draft(block, method, rows["methods"])
    known = method if any(row["name"] == method for row in rows["methods"]) else None
    found += _fields(block, known, rows["fields"])
    found += _tree(config) + _schedule(block)
    found += combination_findings(config, rows["combinations"], release, method=method)
    return worst_first((*found, *open_findings(config)))


def _no_block(config: ServedConfig) -> list[ConfigFinding]:
    elsewhere = config.flags.get("--config")
    if f"--{BLOCK}" in config.flags:
        message = f"{BLOCK} is {printable(config.flags[f'--{BLOCK}'])}, which is no block of fields"
        return [finding(Severity.ERROR, "bad_value", BLOCK, message, remedy=f"write {TYPE} and the rest under it", row=None)]
    if elsewhere is not None:
        message = f"whether it speculates stands in {printable(elsewhere)}, which was not read"
        return [finding(Severity.INFO, "config_elsewhere", "--config", message, remedy="lint that file too", row=None)]
    return plain_server(config, BLOCK, remedy=f"add {BLOCK} to the file of --config", row=None)


def _draft(block: Mapping[str, Any], method: str, rows: list[Mapping[str, Any]]) -> list[ConfigFinding]:
    row = next((each for each in rows if each["name"] == method), None)
    given = next((name for name in MODELS if block.get(name) is not None), None)
    if row is None or (row["needs_draft"] == "always") == (given is not None):
        return []
    if given is None:
        message = f"{method} needs {MODELS[0]}, and there is none"
        return [finding(Severity.ERROR, "draft_missing", MODELS[0], message, remedy=f"set {MODELS[0]} to the draft", row=None)]
    if method == "AUTO":
        return []
    message = f"{given} {printable(block[given])} is not used by {method}"
    return [finding(Severity.WARNING, "ignored", given, message, remedy="leave it out", row=None)]


def _fields(block: Mapping[str, Any], method: str | None, rows: list[Mapping[str, Any]]) -> list[ConfigFinding]:
    """Fields that the decoding type lacks, and values of another kind."""
    by_name = {row["name"]: row for row in rows}
    of_method = [row["name"] for row in rows if method is None or method in row.get("types", [method])]
    found = []
    for name, value in block.items():
        row = by_name.get(name)
        if row is None or name not in of_method:
            near = get_close_matches(name, of_method, n=1, cutoff=0.6)
            whose = "TensorRT-LLM" if row is None or method is None else method
            message = f"{whose} knows no field {printable(name)} in {BLOCK} and refuses it"
            remedy = f"write {near[0]}" if near and near[0] != name else "leave it out"
            found.append(finding(Severity.ERROR, "unknown_key", name, message, remedy=remedy, row=None))
        elif value is not None and not left_open(value) and (fault := value_fault(value, row)) is not None:
            message = f"{name} {printable(value)} {fault}"
            found.append(finding(Severity.ERROR, "bad_value", name, message, remedy="give a value of its kind", row=None))
    return found


def _tree(config: ServedConfig) -> list[ConfigFinding]:
    """The bounds of a dynamic tree."""
    depth, total, topk = (number_at(config, name) for name in ("max_draft_len", "max_total_draft_tokens", "dynamic_tree_max_topK"))
    if depth is None or total is None or topk is None or depth <= total <= topk * depth:
        return []
    message = (
        f"max_total_draft_tokens {total:g} is not between max_draft_len {depth:g} and dynamic_tree_max_topK times it, {topk * depth:g}"
    )
    remedy = f"give {depth:g} to {topk * depth:g}, or leave it out"
    return [finding(Severity.ERROR, "tree_out_of_bounds", "max_total_draft_tokens", message, remedy=remedy, row=None)]


def _schedule(block: Mapping[str, Any]) -> list[ConfigFinding]:
    """What is wrong with a draft length by batch size."""
    schedule, longest = block.get("draft_len_schedule"), block.get("max_draft_len")
    if not isinstance(schedule, Mapping):
        return []
    lengths = {int(key) if isinstance(key, str) and key.isdecimal() and len(key) < 10 else key: each for key, each in schedule.items()}
    fault = None
    if not lengths or not all(is_count(key, least=1) and is_count(each, least=0) for key, each in lengths.items()):
        fault = "is not batch sizes from 1 on with draft lengths from 0 on"
    elif is_count(longest, least=0) and lengths[min(lengths)] != longest:
        fault = f"drafts {lengths[min(lengths)]} at its smallest batch size, which must be max_draft_len {longest}"
    elif is_count(longest, least=0) and max(lengths.values()) > longest:
        fault = f"drafts {max(lengths.values())}, more than max_draft_len {longest}"
    if fault is None:
        return []
    message = f"draft_len_schedule {printable(dict(schedule))} {fault}"
    remedy = "let the smallest batch size draft max_draft_len tokens, and larger ones no more"
    return [finding(Severity.ERROR, "bad_schedule", "draft_len_schedule", message, remedy=remedy, row=None)]
