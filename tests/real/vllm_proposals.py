"""Runs in vLLM's environment: what vLLM's own n-gram proposer drafts.

Reads {"contexts", "rules": [[least, most, K], …]} and writes the drafts by rule and context.
"""

import json
import sys

import numpy as np
from vllm.v1.spec_decode import ngram_proposer  # type: ignore[import-not-found]  # lives in vLLM's environment only

asked = json.load(sys.stdin)
propose = ngram_proposer._find_longest_matched_ngram_and_propose_tokens
no_limit = 1 << 20
contexts = [np.array(context, dtype=np.int32) for context in asked["contexts"]]
drafts = [[propose(each, least, most, no_limit, k).tolist() for each in contexts] for least, most, k in asked["rules"]]
sys.stdout.write(json.dumps(drafts))
