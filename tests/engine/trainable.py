"""A tiny model that can be talked to, and prompts for it: what `train-eagle3` needs."""

import json
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tests.engine.tiny import model_folder

__all__ = ["prompts", "talking_model"]

TEMPLATE = (
    "{% for message in messages %}{{ 'a ' + message['content'] + ' ' }}{% endfor %}{% if add_generation_prompt %}{{ 'b' }}{% endif %}"
)
WORDS = ("pad", "a", "end", "b", "c", "d", "e")


def talking_model(folder: Path) -> Path:
    """A folder with a tiny model, a tokenizer of seven words and a chat template."""
    model_folder(folder, rms_norm_eps=1e-6)
    library = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="pad"))  # noqa: S106 - no password
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=library, eos_token="end", pad_token="pad", chat_template=TEMPLATE).save_pretrained(folder)  # noqa: S106
    return folder


def prompts(file: Path) -> Path:
    """A log of prompts without answers."""
    asked = [" ".join(WORDS[3 + (number * step) % 4] for step in (1, 2, 3)) for number in range(24)]
    lines = [json.dumps({"messages": [{"role": "user", "content": each}], "segment": "words"}) for each in asked]
    file.write_text("\n".join(lines))
    return file
