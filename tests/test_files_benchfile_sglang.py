"""What SGLang's benchmark and SpecForge's table say, under our names."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import BadInputError, NoEvidenceError
from paceline.latency import Detail
from paceline.run import Arm, Load
from paceline.speculation.method import Method, Tree
from tests.benchfiles import FOLDER, changed, codes, read_all, read_evidence

SGLANG = FOLDER / "sglang-oai-chat-spec.jsonl"
TABLE = FOLDER / "specforge-table.json"


def test_the_lists_are_gaps_between_messages_where_the_text_was_tokenized_again() -> None:
    """Whoever compares with vLLM: the stated ITL of 8.1 ms is per token, a message came every 20.5 ms."""
    run = read_evidence(SGLANG)
    assert run.requests is not None
    assert run.requests[0].timing.chunk_at_s.size == 27
    assert run.summaries["chunk_gap_s"].value == pytest.approx((0.533046882 + 0.512699906 + 0.51283076 + 0.492103069) / 100, rel=1e-6)
    assert run.summaries["tpot_s"].value == pytest.approx(8.137741797617714e-3, rel=1e-4)
    assert "token_gap_s" not in run.summaries
    assert run.load == Load(concurrency=4, rate_per_s=None)


def test_accept_length_is_the_servers_and_gives_no_counts() -> None:
    """Whoever reads accept_length 2.46: it is the mean since the server's start, warm-up included."""
    run = read_evidence(SGLANG)
    assert (run.arm, run.acceptance_by_segment) == (Arm.SPECULATIVE, None)
    assert run.summaries["acceptance_length"].value == pytest.approx(2.4608695652173913)
    assert "accept_length_of_server" in codes(run)


def test_without_lists_the_itl_is_named_by_what_it_was(tmp_path: Path) -> None:
    """Whoever has only the summary: amortised with drafts, between messages for another server's backend."""

    def summary(document: dict[str, Any], **new: object) -> None:
        for key in ("itls", "ttfts", "input_lens", "output_lens"):
            del document[key]
        document |= new

    amortised = read_evidence(changed(SGLANG, tmp_path, summary))
    assert amortised.summaries["token_gap_p99_s"].value == pytest.approx(20.71397405995e-3)
    assert "chunk_gap_s" not in amortised.summaries
    assert "itl_is_per_token" in codes(amortised)
    for new in ({"backend": "vllm"}, {"accept_length": None}):
        raw = read_evidence(changed(SGLANG, tmp_path, partial(summary, **new)))
        assert raw.summaries["chunk_gap_s"].value == pytest.approx(8.137621500000455e-3)
        assert "token_gap_s" not in raw.summaries


def test_the_native_backend_repeats_a_gap_for_each_token_of_a_message(tmp_path: Path) -> None:
    """Whoever used SGLang's own API: equal gaps in a row are one message, so its size is known and the gap is their sum."""

    def native(document: dict[str, Any]) -> None:
        document |= {"backend": "sglang", "completed": 1, "input_lens": [9], "output_lens": [7], "ttfts": [0.5], "errors": [""]}
        document |= {"itls": [[0.01, 0.01, 0.01, 0.02, 0.015, 0.015]], "generated_texts": ["a b"]}

    run = read_evidence(changed(SGLANG, tmp_path, native))
    assert run.requests is not None
    timing = run.requests[0].timing
    assert timing.detail is Detail.CHUNKS
    assert timing.chunk_at_s.tolist() == pytest.approx([0.5, 0.53, 0.55, 0.58])
    assert timing.chunk_tokens.tolist() == [1, 3, 1, 2]
    assert timing.token_gaps_s.tolist() == pytest.approx([0.01, 0.01, 0.01, 0.02, 0.015, 0.015])
    assert timing.tpot_s == pytest.approx(0.08 / 6)


def test_random_prompts_and_empty_runs_are_said(tmp_path: Path) -> None:
    """Whoever benchmarked random tokens, or nothing."""
    assert "random_dataset" in codes(read_evidence(changed(SGLANG, tmp_path, lambda d: d.update(dataset_name="random"))))
    with pytest.raises(NoEvidenceError, match="finished no request"):
        read_evidence(changed(SGLANG, tmp_path, lambda d: d.update(completed=0)))
    with pytest.raises(BadInputError, match="different lengths"):
        read_evidence(changed(SGLANG, tmp_path, lambda d: d.update(ttfts=[0.1])))


def test_a_table_gives_both_arms_of_every_row() -> None:
    """Whoever reads SpecForge's results: throughput of both arms at one batch, the tree as SGLang means it."""
    found = {each.label: each.run for each in read_all(TABLE)}
    name = "Qwen3-30B-A3B-Instruct-2507/gsm8k/b8"
    plain, chain, tree = (found[f"{name}/{each}"] for each in ("3,1,4/baseline", "3,1,4/speculative", "5,3,6/speculative"))
    assert (plain.arm, chain.arm, chain.load.concurrency) == (Arm.BASELINE, Arm.SPECULATIVE, 8)
    assert chain.summaries["output_tokens_per_s"].value / plain.summaries["output_tokens_per_s"].value == pytest.approx(1.38931, rel=1e-4)
    assert chain.speculation is not None
    assert (chain.speculation.method, chain.speculation.draft_tokens, chain.speculation.tree) == (Method.EAGLE3, 3, None)
    assert tree.speculation is not None
    assert tree.speculation.tree == Tree(depth=5, topk=3, nodes=5)
    assert chain.acceptance_by_segment is None
    with pytest.raises(BadInputError, match="holds 4 runs"):
        read_evidence(TABLE)


def test_a_table_with_impossible_sizes_is_refused(tmp_path: Path) -> None:
    """Whoever edited it: no drafting has no steps."""
    document = json.loads(TABLE.read_text(encoding="utf-8"))
    document["Qwen3-30B-A3B-Instruct-2507"]["gsm8k"]["results"][0]["steps"] = 0
    path = tmp_path / "table.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(BadInputError, match="lacks steps"):
        read_all(path)


def test_the_servers_limits_are_kept(tmp_path: Path) -> None:
    """Whoever compares a batch of 48 with one of 64, or drafts let through below the target's choice."""
    info = {
        "model_path": "m",
        "max_running_requests": 48,
        "speculative_accept_threshold_acc": 0.9,
        "speculative_accept_threshold_single": "x",
    }
    told = read_evidence(changed(SGLANG, tmp_path, lambda d: d.update(server_info=info))).provenance.arguments
    assert (told["max_running_requests"], told["speculative_accept_threshold_acc"]) == ("48", "0.9")
    assert "speculative_accept_threshold_single" not in told
