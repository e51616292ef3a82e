"""Runs in the engine's environment: how many logged tokens are the model's own greedy choice, up to numeric noise.

Reads {"exchanges": [{"prompt_token_ids", "token_ids"}, …]} and writes [[greedy, near, tokens], …] by exchange: tokens that are the argmax,
and those that miss it by less than NEAR logits. One forward per exchange: the log is fed in, and each token compared with what the model
would have chosen there.
"""

import json
import sys

import torch  # lives in the engine's environment only
from transformers import AutoModelForCausalLM

NEAR = 0.01

model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
counted = []
for exchange in json.load(sys.stdin)["exchanges"]:
    prompt, output = exchange["prompt_token_ids"], exchange["token_ids"]
    with torch.inference_mode():
        logits = model(torch.tensor([prompt + output])).logits[0, len(prompt) - 1 : -1]
    chosen = logits[torch.arange(len(output)), torch.tensor(output)]
    missing = logits.max(dim=-1).values - chosen
    counted.append([int((missing == 0).sum()), int(((missing > 0) & (missing < NEAR)).sum()), len(output)])
sys.stdout.write(json.dumps(counted))
