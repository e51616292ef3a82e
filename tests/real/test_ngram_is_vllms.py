"""Our n-gram drafts are those of a real vLLM."""

import json
import subprocess
from pathlib import Path

import numpy as np

from paceline.replay.ngram import NgramRule, propose

RULES = [(2, 4, 5), (1, 3, 3), (5, 5, 4)]
CONTEXTS = 10_000


def test_every_proposal_equals_vllms_own(vllm_python: Path) -> None:
    """Somebody who reads α off a replay expects that number from the engine: one token of difference in the rule changes it."""
    rng = np.random.default_rng(20)
    contexts = [rng.integers(0, rng.integers(2, 12), size=rng.integers(1, 80)).tolist() for _ in range(CONTEXTS)]
    script = Path(__file__).with_name("vllm_proposals.py")
    asked = json.dumps({"contexts": contexts, "rules": RULES})
    answer = subprocess.run([str(vllm_python), str(script)], input=asked, capture_output=True, text=True, check=True, timeout=300)
    for (least, most, draft_tokens), theirs in zip(RULES, json.loads(answer.stdout.splitlines()[-1]), strict=True):
        rule = NgramRule(min_tokens=least, max_tokens=most, draft_tokens=draft_tokens)
        ours = [propose(np.array(context, dtype=np.int32), rule).tolist() for context in contexts]
        assert ours == theirs
        assert CONTEXTS / 20 < sum(1 for each in ours if each) < CONTEXTS, "the contexts neither always match nor hardly ever"
