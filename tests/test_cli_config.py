"""`config` prints what is pasted into a shell, a compose file or a cluster, and `memory` what a draft's own files weigh."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.checkpoints import HEAD, HEAD_BODY, folder
from tests.conftest import Answer

Paceline = Callable[[Sequence[str]], Answer]
ASKED = ("config", "--target", "llama-3.3-70b", "--gpus", "4", "--dtype", "bf16")


def said(answer: Answer) -> dict[str, Any]:
    assert answer.code == 0, answer.err
    body: dict[str, Any] = json.loads(answer.out)
    return body


def test_what_switches_speculation_on_is_printed_alone(paceline: Paceline) -> None:
    """Whoever has a command already: only the value is missing, and notes must not stand in it."""
    vllm = paceline([*ASKED, "--emit", "json"])
    assert json.loads(vllm.out)["method"] == "eagle3"
    sglang = json.loads(paceline([*ASKED, "--engine", "sglang", "--emit", "json", "--draft-tokens-by-batch", "1-8:3,9-256:0"]).out)
    assert sglang["--speculative-adaptive"] is True
    trtllm = yaml.safe_load(paceline([*ASKED, "--engine", "tensorrt_llm", "--emit", "json"]).out)
    assert trtllm["speculative_config"]["decoding_type"] == "Eagle"


def test_documents_are_whole_and_say_what_is_left_to_do(paceline: Paceline, tmp_path: Path) -> None:
    """Whoever pipes it into kubectl: notes are comments, and a folder that the container lacks is one of them."""
    head = folder(tmp_path / "head", HEAD, None)
    compose = paceline([*ASKED, "--engine", "llamacpp", "--emit", "compose", "--method", "ngram", "--gguf", str(tmp_path)])
    assert list(yaml.safe_load(compose.out)["services"]) == ["baseline", "speculative"]
    assert f"# a container does not see {tmp_path}" in compose.out
    assert "# put the image of llamacpp" in compose.out
    kubernetes = paceline([*ASKED, "--emit", "kubernetes", "--draft", str(head), "--image", "mine:1"])
    documents = list(yaml.safe_load_all(kubernetes.out))
    assert [each["kind"] for each in documents] == ["Deployment", "Service"] * 2
    container = documents[2]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "mine:1"
    assert json.loads(container["command"][container["command"].index("--speculative-config") + 1])["model"] == str(head)


def test_every_engine_answers_in_json(paceline: Paceline) -> None:
    """Whoever scripts it: both commands, the files they read, and the document that was asked for."""
    body = said(paceline([*ASKED, "--engine", "tensorrt_llm", "--emit", "compose", "--json"]))
    assert (body["engine"], body["engine_version"], body["compatibility"]) == ("tensorrt_llm", "1.2.1", [])
    assert set(body["files"]) == {"baseline.yaml", "speculative.yaml"}
    assert "services" in yaml.safe_load(body["emitted"])
    assert "emitted" not in said(paceline([*ASKED, "--json"]))


@pytest.mark.parametrize("text", ["5", "1-4:3", "2-256:1", "1-256:4"])
def test_a_table_that_is_none_is_refused(paceline: Paceline, text: str) -> None:
    """Whoever mistypes it, leaves a load out or drafts more than K: half a table is another one."""
    answer = paceline([*ASKED, "--draft-tokens-by-batch", text])
    assert answer.code == 2
    assert "--draft-tokens-by-batch" in answer.err


def test_memory_counts_a_draft_s_own_files(paceline: Paceline, tmp_path: Path) -> None:
    """Whoever trained a head: its own bytes, and which figure is whose."""
    head = folder(tmp_path / "head", HEAD, HEAD_BODY)
    asked = ["memory", "--target", "llama-3.1-8b", "--gpus", "1", "--dtype", "bf16", "--draft", str(head)]
    body = said(paceline([*asked, "--json"]))
    assert body["draft_from_checkpoint"] is True
    assert body["draft_bytes"] == 2 * (8 * 24 + 8 * 16 + 8 + 10 * 8)
    assert body["activations"]["speculative"]["kept_state_bytes"] == 3 * 8192 * 4096 * 2
    assert "as its files have it" in paceline(asked).out
    named = paceline([*asked[:-1], "some/head"])
    assert named.code == 2
    assert "folder of its safetensors" in named.err
