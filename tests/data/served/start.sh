#!/bin/bash
# the server before: vllm serve old-model
set -e
export VLLM_USE_V1=1
vllm serve meta-llama/Llama-3.1-8B-Instruct \
  --port 8000 \
  --speculative-config '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}' \
  > server.log 2>&1 &
CUDA_VISIBLE_DEVICES=1 python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --speculative-algo EAGLE3 --speculative-draft-model-path d
