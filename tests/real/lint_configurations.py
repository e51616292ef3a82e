"""Configurations of a vLLM server, most of them wrong in one way, with the folders of targets and drafts that they name.

The folders hold a config.json and nothing else: vLLM builds its engine configuration from that. Each configuration starts as one that
works, then gets some of the changes below: a key with a value from a pool that holds right and wrong ones, a flag, another draft.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from paceline.data.tables import table
from paceline.servers.vllm.versions import holds, vllm_version

__all__ = ["VERSION", "Asked", "configurations", "made_folders"]

VERSION = "0.32.0"
POOLS: Mapping[str, Sequence[Any]] = {
    "integer": [1, 2, 3, 4, 8, 0, -1, "4", " 4 ", "4.0", "four", 2.0, 2.5, True, None, [], 130, 2048, 10**7],
    "number": [0, 0.5, 1.0, -0.1, 1.5, "0.3", "much", True, None, []],
    "flag": [True, False, "yes", "off", "maybe", 1, 0, 2, None, []],
    "text": ["main", "", 3, None, ["main"], "fp8", "awq", "no-such"],
    "rates": [[0.9, 0.6, 0.3, 0.1], [0.9, 0.95, 0.3, 0.1], [0.9], [1.2, 0.5, 0.2, 0.1], [], "0.9", [0.9, "x"], None],
    "schedule": [
        [[1, 4, 2]],
        [[1, 4, 2], [5, 64, 0]],
        [[1, 4, 2], [9, 64, 1]],
        [[2, 4, 2]],
        [[1, 4, 2], [3, 8, 1]],
        [[1, 4, -1]],
        [[4, 1, 2]],
        [[1, 4, 9]],
        [[1, 4]],
        [["1", 4, 2]],
        [[0, 4, 2]],
        [],
        {"1-4": 2},
        "auto",
        None,
    ],
    "object": [{}, {"load_format": "dummy"}, "dummy", 3, None],
}
STRANGE = ["num_spec_tokens", "num_draft_tokens", "ngram_prompt_lookup_max", "speculative_model", "temperature", "draft_model"]
METHODS = ["ngram", "ngram_gpu", "suffix", "draft_model", "eagle", "eagle3", "medusa", "mtp", "mimo_mtp", "custom_class", "dflash"]
WRONG_METHODS = ["eagle-3", "EAGLE3", "[ngram]", "lookahead", "nextn", "", 3, None, "mlp_speculator"]
KINDS = [*["key"] * 8, *["flag"] * 4, "model", "model", "draft", "draft", "method", "missing", "strange", "key of another version"]
DRAFTS = ["draft", "draft-short", "draft-six-heads", "draft-other-words", "head-of-eagle3", "empty"]
LENGTHS = [None, 512, 2048, 4096, 100_000]
FLAGS: Sequence[Sequence[str]] = [
    ["--tensor-parallel-size", "2"],
    ["--tensor-parallel-size", "3"],
    ["--tensor-parallel-size", "4"],
    ["--pipeline-parallel-size", "2"],
    ["--data-parallel-size", "2"],
    ["--async-scheduling"],
    ["--enable-lora"],
    ["--enable-lora", "--max-num-batched-tokens", "512", "--max-num-seqs", "128"],
    ["--kv-sharing-fast-prefill"],
    ["--max-num-batched-tokens", "4", "--max-num-seqs", "4"],
    ["--max-num-batched-tokens", "4", "--max-num-seqs", "64"],
    ["--max-num-batched-tokens", "8192", "--max-num-seqs", "64"],
    ["--enable-chunked-prefill"],
    ["--enable-prefix-caching"],
    ["--per-request-spec-decode-metrics", "summary"],
    ["--per-request-spec-decode-metrics", "none"],
    ["--enable-per-request-metrics", "--disable-log-stats"],
    ["--disable-log-stats"],
    ["--max-model-len", "512"],
    ["--enforce-eager"],
    ["--spec-tokens", "3"],
    ["--spec-method", "ngram"],
    ["--spec-model", "draft"],
    ["--speculative-model", "somewhere"],
]


@dataclass(frozen=True, slots=True)
class Asked:
    """A server: its target, its flags, and its speculative configuration (None without one)."""

    target: str
    flags: tuple[str, ...]
    speculative: Any

    @property
    def words(self) -> list[str]:
        """What follows `vllm serve`."""
        stated = [] if self.speculative is None else ["--speculative-config", json.dumps(self.speculative)]
        return [self.target, *self.flags, *stated]


def made_folders(root: Path, served: Mapping[str, Any]) -> dict[str, str]:
    """Targets and drafts by name; `served` is the config.json of a Llama that vLLM serves."""
    whole = {**served, "num_attention_heads": 8, "num_key_value_heads": 4, "hidden_size": 512, "head_dim": 64}
    small = {**whole, "num_hidden_layers": 2}
    heads = {"num_hidden_layers": 1}
    kinds: dict[str, dict[str, Any]] = {
        "target": whole,
        "target-short": {**whole, "max_position_embeddings": 1024},
        "target-mimo": {**whole, "model_type": "qwen2", "architectures": ["MiMoForCausalLM"], "num_nextn_predict_layers": 2},
        "draft": small,
        "draft-six-heads": {**small, "num_attention_heads": 6, "num_key_value_heads": 3, "hidden_size": 384},
        "draft-other-words": {**small, "vocab_size": 32000},
        "draft-short": {**small, "max_position_embeddings": 2048},
        "head-of-eagle3": {**small, **heads, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 1000},
        "eagle3-by-name": {**small, **heads, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 1000},
        "head-of-eagle": {**small, **heads},
        "eagle-by-name": {**small, **heads},
        "head-of-dflash": {**small, **heads, "architectures": ["DFlashDraftModel"], "model_type": "qwen3"},
        "medusa-head": {"model_type": "medusa", "architectures": ["MedusaModel"], "hidden_size": 512, "vocab_size": 49152, "num_heads": 3},
        "mtp-layers": {**small, "model_type": "qwen2", "architectures": ["MiMoForCausalLM"], "num_nextn_predict_layers": 3},
        "no-head": {**small, **heads, "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]},
    }
    folders = {}
    for name, config in kinds.items():
        folder = root / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value is not None}), "utf-8")
        folders[name] = str(folder)
    (root / "empty").mkdir()
    (root / "not-json").mkdir()
    (root / "not-json" / "config.json").write_text("{", "utf-8")
    return folders | {"empty": str(root / "empty"), "not-json": str(root / "not-json")}


def configurations(folders: Mapping[str, str], *, number: int, seed: int) -> list[Asked]:
    """That many servers: a part as they should be, the others with one to three changes."""
    rng = Random(seed)
    return [_asked(folders, rng, changes=(0, 1, 1, 1, 2, 3)[i % 6]) for i in range(number)]


def _asked(folders: Mapping[str, str], rng: Random, *, changes: int) -> Asked:
    method = rng.choice(METHODS)
    target, speculative = _working(method, folders, rng)
    flags: list[str] = []
    for _ in range(changes):
        kind = rng.choice(KINDS)
        if kind in ("key", "key of another version"):
            row = rng.choice(_rows(here=kind == "key"))
            speculative[row["name"]] = rng.choice(_pool(row))
        elif kind == "draft":
            speculative |= {"method": "draft_model", "model": folders[rng.choice(DRAFTS)], "max_model_len": rng.choice(LENGTHS)}
        elif kind == "flag":
            more = rng.choice(FLAGS)
            flags += [] if set(more) & set(flags) else [folders.get(word, word) for word in more]
        elif kind == "model":
            speculative["model"] = rng.choice([*folders.values(), "[gram]", "ngram", 3, None])
        elif kind == "method":
            speculative["method"] = rng.choice([*METHODS, *WRONG_METHODS])
        elif kind == "missing" and speculative:
            speculative.pop(rng.choice(sorted(speculative)))
        elif kind == "strange":
            speculative[rng.choice(STRANGE)] = 3
    return Asked(target=target, flags=tuple(flags), speculative=speculative)


def _working(method: str, folders: Mapping[str, str], rng: Random) -> tuple[str, dict[str, Any]]:
    """A target and a configuration that vLLM takes for this method."""
    drafts = {
        "draft_model": ["draft", "draft-short"],
        "eagle": ["head-of-eagle", "eagle-by-name"],
        "eagle3": ["head-of-eagle3", "eagle3-by-name"],
        "medusa": ["medusa-head"],
        "mtp": ["mtp-layers"],
        "mimo_mtp": ["mtp-layers"],
        "dflash": ["head-of-dflash"],
    }
    target = folders[rng.choice(("target", "target", "target-short"))]
    speculative: dict[str, Any] = {"method": method, "num_speculative_tokens": 6 if "mtp" in method else 4}
    if method in drafts:
        speculative["model"] = folders[rng.choice(drafts[method])]
    if method == "custom_class":
        speculative["model"] = "package.module.Proposer"
    if method == "ngram" and rng.random() < 0.5:
        speculative |= {"prompt_lookup_min": rng.choice((1, 2, 4)), "prompt_lookup_max": rng.choice((3, 4, 5))}
    if method == "suffix" and rng.random() < 0.5:
        speculative["suffix_decoding_max_tree_depth"] = rng.choice((8, 24))
    if "mtp" in method and rng.random() < 0.5:
        target = folders["target-mimo"]
        speculative.pop("model")
    if rng.random() < 0.1:
        speculative |= {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": rng.choice((2.5, 4, 9, 0.5))}
    return target, speculative


def _rows(*, here: bool) -> list[Mapping[str, Any]]:
    """The keys of --speculative-config in this version, or those of the others."""
    return [row for row in table("servers/vllm_fields")["fields"] if holds(row, vllm_version(VERSION)) == here]


def _pool(row: Mapping[str, Any]) -> Sequence[Any]:
    lists = [each for each in table("servers/vllm_fields")["choices"] if each["field"] == row["name"]]
    known = [value for each in lists if holds(each, vllm_version(VERSION)) for value in each["values"]]
    others = [value for each in lists for value in each["values"]]
    if row["kind"] in ("choice", "text") and lists:
        return [*known[:4], *(each.upper() for each in known[:2]), *others[-3:], "no-such", 3, None]
    return POOLS["text" if row["kind"] == "choice" else row["kind"]]
