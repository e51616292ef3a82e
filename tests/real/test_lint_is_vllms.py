"""What `lint` says of a vLLM configuration is what a real vLLM says, which builds its engine configuration from it or refuses."""

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.data.tables import table
from paceline.servers.vllm.versions import holds, vllm_version
from tests.conftest import Answer
from tests.real.lint_configurations import VERSION, Asked, configurations, made_folders

SCRIPT = Path(__file__).with_name("vllm_engine_configs.py")
NUMBER = 500
SEED = 2
LEAST_KEPT = 300
LEAST_WRONG = 0.4
LEAST_REASONS = 25
LEAST_AGREEMENT = 0.98
BUILD_S = 600.0

# What we call an error and vLLM refuses only after its engine configuration is built, or never: it serves and drafts in vain.
LATER: Mapping[str, str] = {
    "draft_too_long": "an assertion of the rejection sampler, while serving",
    "draft_tensor_parallel_differs": "refused when the draft is loaded",
    "no_mask_token": "refused when the draft is loaded",
    "hidden_sizes_differ": "fails when the draft is loaded",
    "method_of_another_draft": "fails when the draft is loaded, or is never accepted",
    "draft_shorter_than_target": "crashes while serving",
    "method_does_not_work": "taken, and refused by the runner (mlp_speculator)",
    "per_request_metrics_without_statistics": "refused by the API server, behind the engine's configuration",
}


def not_judged_here(asked: Asked) -> str | None:
    """Why this vLLM, a build for CPUs without a network, cannot answer for the one that we speak of; None where it can."""
    stated = asked.speculative
    if stated.get("enable_adaptive_verification") not in (None, False, "off", 0) or stated.get("method") == "dspark":
        return "Model Runner V2 only, which needs a GPU's Triton"
    model = stated.get("model")
    drafts = stated.get("method") not in ("ngram", "ngram_gpu", "suffix", "custom_class")
    if isinstance(model, str) and drafts and "[" not in model and model != "ngram" and not Path(model).is_dir():
        return "a name that would be looked for on the network"
    return None


def reason(refusal: str) -> str:
    """A refusal without the values in it."""
    text = refusal.split("Value error, ")[-1].split("[type=")[0]
    text = text.split("\n", 2)[-1] if text.count("\n") > 1 else text
    return re.sub(r"\s+", " ", re.sub(r"[0-9.]+|'[^']*'|\"[^\"]*\"|\[[^]]*\]|\([^)]*\)", "_", text)).strip()[:70]


def theirs(vllm_python: Path, asked: Sequence[Asked], packages: Path) -> list[str | None]:
    """What vLLM says; the package that suffix decoding asks for by name is there by name."""
    (packages / "arctic_inference").mkdir()
    (packages / "arctic_inference" / "__init__.py").write_text("", "utf-8")
    answer = subprocess.run(
        [vllm_python, SCRIPT],
        input=json.dumps([each.words for each in asked]),
        capture_output=True,
        text=True,
        check=True,
        timeout=BUILD_S,
        env={**os.environ, "PYTHONPATH": str(packages)},
    )
    said: list[str | None] = json.loads(answer.stdout.splitlines()[-1])
    return said


def test_lint_refuses_what_vllm_refuses_and_nothing_else(
    vllm_python: Path, model_dir: Path, tmp_path: Path, paceline: Callable[[Sequence[str]], Answer]
) -> None:
    """Whoever trusts it: an error that is none stops a good rollout, a missed one is found by the server at night."""
    served: dict[str, Any] = json.loads((model_dir / "config.json").read_text("utf-8"))
    asked = configurations(made_folders(tmp_path, served), number=NUMBER, seed=SEED)
    kept: list[tuple[Asked, str | None, set[str]]] = []
    for each, said in zip(asked, theirs(vllm_python, asked, tmp_path), strict=True):
        answer = paceline(["lint", "--engine", "vllm", "--engine-version", VERSION, "--json", "--", "vllm", "serve", *each.words])
        assert answer.code in (0, 1), answer.err
        ours = {found["code"] for found in json.loads(answer.out)["findings"] if found["severity"] == "error"}
        later = said is None and bool(ours) and ours <= LATER.keys()
        if not later and not_judged_here(each) is None:
            kept.append((each, said, ours))
    refused = [said for _, said, _ in kept if said is not None]
    keys = {key for each, _, _ in kept for key in each.speculative}
    known = {row["name"] for row in table("servers/vllm_fields")["fields"] if holds(row, vllm_version(VERSION))}
    assert len(kept) >= LEAST_KEPT
    assert len(refused) >= LEAST_WRONG * len(kept)
    assert len(Counter(map(reason, refused))) >= LEAST_REASONS
    assert known - keys == set()
    false_errors = [(each.words, ours) for each, said, ours in kept if ours and said is None]
    missed = [(each.words, said) for each, said, ours in kept if not ours and said is not None]
    assert not false_errors
    assert 1 - len(missed) / len(kept) >= LEAST_AGREEMENT, missed
