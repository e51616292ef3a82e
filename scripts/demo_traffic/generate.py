"""
The demo traffic: asks SmolLM2-135M-Instruct every prompt of `prompts.toml` at temperature 0 and writes what `ship.py` lets through.

Runs in the engine's environment, which `scripts/install_engine` makes and prints:

    PYTHONPATH=src ENGINE_PYTHON scripts/demo_traffic/generate.py --model MODEL_DIR --work WORK_FILE

Rules:

- Each token is the argmax of the float32 logits: no sampling and no penalty, whatever the model's own generation config says.
- Prompts go in batches of similar length, padded on the left. Each finished batch is appended to the work file, and a prompt
  found there is not asked again: an interrupted run goes on where it stopped.
- The answer ends at the end-of-sequence token, which counts as an output token (`stop`), or at the limit (`length`). One whose
  loops already exceed what `ship.py` allows at the limit is abandoned early: it would be dropped however it went on.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
import transformers
from prompts import PROMPTS_FILE, Prompt, read_prompts
from ship import DATA_DIR, LOOP_SHARE_LIMIT, LOOP_TOKENS, MAX_NEW_TOKENS, Engine, ship
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from paceline.traffic.loops import loop_share

BATCH_PROMPTS = 64


def main() -> None:
    """Ask what the work file lacks, then write the data file and its provenance."""
    parser = argparse.ArgumentParser(description="Make paceline's demo traffic with SmolLM2-135M-Instruct.")
    parser.add_argument("--model", type=Path, required=True, help="the model's directory, as scripts/install_engine prints it")
    parser.add_argument("--work", type=Path, required=True, help="the file that keeps finished answers between runs")
    parser.add_argument("--out", type=Path, default=DATA_DIR, help="where the data file and its provenance go")
    parser.add_argument("--threads", type=int, default=1, help="more than one is slower, not faster, where other work shares the cores")
    arguments = parser.parse_args()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(arguments.threads)
    prompts = read_prompts(PROMPTS_FILE)
    ask_missing(prompts, model_dir=arguments.model, work=arguments.work)
    done = read_work(arguments.work)
    ship([done[prompt.text] for prompt in prompts], engine=read_engine(arguments.model), folder=arguments.out)


def read_engine(model_dir: Path) -> Engine:
    """What answered: the package and file that the model came from, and the libraries that ran it."""
    package, gguf_sha256 = (model_dir / ".paceline-complete").read_text(encoding="utf-8").split()
    return Engine(package=package, gguf_sha256=gguf_sha256, torch=torch.__version__, transformers=transformers.__version__)


def read_work(work: Path) -> dict[str, dict[str, Any]]:
    """The exchanges finished so far, by their prompt. A last line cut short by an interruption is left out."""
    done = {}
    lines = work.read_text(encoding="utf-8").splitlines(keepends=True) if work.exists() else []
    for line in lines:
        if line.endswith("\n"):
            exchange = json.loads(line)
            done[exchange["messages"][0]["content"]] = exchange
    return done


def ask_missing(prompts: list[Prompt], *, model_dir: Path, work: Path) -> None:
    """Append an exchange to the work file for every prompt that it lacks."""
    done = read_work(work)
    work.write_text("".join(json.dumps(exchange) + "\n" for exchange in done.values()), encoding="utf-8")
    missing = [prompt for prompt in prompts if prompt.text not in done]
    if not missing:
        return
    tokenizer = AutoTokenizer.from_pretrained(model_dir, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval()
    asked = sorted(((render(tokenizer, prompt), prompt) for prompt in missing), key=lambda pair: len(pair[0]))
    started_at_s = time.monotonic()
    for first in range(0, len(asked), BATCH_PROMPTS):
        batch = asked[first : first + BATCH_PROMPTS]
        with work.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(exchange) + "\n" for exchange in answer(model, tokenizer, batch))
        report_progress(first + len(batch), len(asked), elapsed_s=time.monotonic() - started_at_s)


def render(tokenizer: Any, prompt: Prompt) -> list[int]:
    """The prompt's token ids under the model's chat template, which puts its default system turn in front."""
    turn = [{"role": "user", "content": prompt.text}]
    return tokenizer.apply_chat_template(turn, add_generation_prompt=True, return_dict=False)


def answer(model: Any, tokenizer: Any, batch: list[tuple[list[int], Prompt]]) -> list[dict[str, Any]]:
    """The model's greedy answer to each prompt of the batch, as an exchange."""
    padded = tokenizer.pad({"input_ids": [ids for ids, _ in batch]}, return_tensors="pt")
    answers = decode(model, padded["input_ids"], padded["attention_mask"], stop_token=tokenizer.eos_token_id)
    return [exchange(tokenizer, prompt, ids, tokens) for (ids, prompt), tokens in zip(batch, answers, strict=True)]


@torch.inference_mode()
def decode(
    model: Any,
    step_ids: torch.Tensor,  # [batch, longest prompt], padded on the left
    mask: torch.Tensor,  # [batch, longest prompt]
    *,
    stop_token: int,
) -> list[list[int]]:
    """
    The most likely token after each row, again and again until the row ends.

    transformers' own `generate` keeps a finished row in the batch until the last one ends and works on it all the while. Here a
    row leaves the batch, and its keys and values leave the cache, when it ends.
    """
    answers: list[list[int]] = [[] for _ in step_ids]
    rows = list(range(len(answers)))
    cache = DynamicCache(config=model.config)
    while True:
        positions = (mask.cumsum(dim=-1) - 1).clamp(min=0)[:, -step_ids.shape[1] :]
        output = model(step_ids, attention_mask=mask, position_ids=positions, past_key_values=cache, logits_to_keep=1)
        step_ids = output.logits[:, -1].argmax(dim=-1, keepdim=True)  # [rows, 1]
        for row, token in zip(rows, step_ids.flatten().tolist(), strict=True):
            answers[row].append(token)
        going = [place for place, row in enumerate(rows) if not ended(answers[row], stop_token=stop_token)]
        if not going:
            return answers
        if len(going) < len(rows):
            rows = [rows[place] for place in going]
            kept = torch.tensor(going)
            cache.batch_select_indices(kept)
            step_ids, mask = step_ids[kept], mask[kept]
        mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=-1)


def ended(tokens: list[int], *, stop_token: int) -> bool:
    """Whether an answer is complete, or so deep in a loop that nothing which could follow would let it ship."""
    if tokens[-1] == stop_token or len(tokens) == MAX_NEW_TOKENS:
        return True
    return len(tokens) % LOOP_TOKENS == 0 and loop_share(tokens, n=LOOP_TOKENS) * len(tokens) > LOOP_SHARE_LIMIT * MAX_NEW_TOKENS


def exchange(tokenizer: Any, prompt: Prompt, prompt_ids: list[int], tokens: list[int]) -> dict[str, Any]:
    """One prompt and its answer, in the shape that ships."""
    return {
        "messages": [
            {"role": "user", "content": prompt.text},
            {"role": "assistant", "content": tokenizer.decode(tokens, skip_special_tokens=True)},
        ],
        "segment": prompt.segment,
        "finish_reason": "stop" if tokens[-1] == tokenizer.eos_token_id else "length",
        "prompt_token_ids": prompt_ids,
        "token_ids": tokens,
    }


def report_progress(done: int, total: int, *, elapsed_s: float) -> None:
    """One line on stderr: how far, and how long it still takes at the pace so far."""
    left_s = elapsed_s / done * (total - done)
    print(f"{done}/{total} prompts, {elapsed_s:.0f} s, about {left_s:.0f} s left", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
