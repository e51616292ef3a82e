"""The packaged demo traffic is what the model it names writes at temperature 0."""

import json
import subprocess
from pathlib import Path

from paceline.data.tables import demo_traffic_lines

EXCHANGES = 60


def test_every_logged_token_is_the_models_own_greedy_choice(engine_python: Path, model_dir: Path) -> None:
    """Acceptance on text that nobody's model wrote would illustrate nothing."""
    lines = demo_traffic_lines()
    exchanges = [json.loads(line) for line in lines[:: len(lines) // EXCHANGES]]
    asked = json.dumps({"exchanges": [{key: each[key] for key in ("prompt_token_ids", "token_ids")} for each in exchanges]})
    script = Path(__file__).with_name("argmax_shares.py")
    command = [str(engine_python), str(script), str(model_dir)]
    answer = subprocess.run(command, input=asked, capture_output=True, text=True, check=True, timeout=600)
    greedy, near, tokens = (sum(column) for column in zip(*json.loads(answer.stdout.splitlines()[-1]), strict=True))
    assert tokens > 3000
    assert greedy + near == tokens, f"{tokens - greedy - near} of {tokens} tokens are not the model's choice"
    assert near <= tokens / 1000
