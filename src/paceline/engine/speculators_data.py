"""What the target answered, as the training of the `speculators` library reads it: version 0.9.0 was checked.

    *.arrow                             rows of input_ids, loss_mask (1: answer) and seq_len, one per answer
    hidden_states/hs_<row>.safetensors  token_ids [tokens], hidden_states [tokens, layers + 1, hidden]: auxiliary layers, then the last
    d2t-<size>.npy, t2d-<size>.npy      the draft vocabulary, which the library looks for by its size

Two things differ from our own states. A row has a hidden state for every token, so it ends before the last token, which nobody read; the
last state still teaches that token's law. And the last layer's state stands before the target's final norm there, ours behind it: divided
by the norm's gain it is that state brought to a root mean square of 1, of which the library's norm makes ours again.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paceline.engine.checkpoint import Checkpoint
from paceline.engine.config_sizes import nested_size
from paceline.engine.states import Conversation, save_whole
from paceline.engine.train_eagle3.vocabulary import DraftVocabulary
from paceline.errors import BadInputError, printable
from paceline.files.whole import make_folder

__all__ = ["data_set_library", "final_gain", "write_speculators_data"]

STATES = "hidden_states"
NORM = "model.norm.weight"
# Families whose norm multiplies by 1 + weight, as the library has them (`GEMMA_STYLE_FINAL_NORM_MODEL_TYPES` in its models/utils.py).
ONE_PLUS = ("gemma", "gemma2", "gemma3", "gemma3_text", "qwen3_5", "qwen3_5_text", "recurrent_gemma")


def data_set_library() -> Any:
    """The library `datasets`, in whose format the rows are.

    Raises:
        BadInputError: it is not installed.

    """
    try:
        import datasets
    except ModuleNotFoundError:
        raise BadInputError("--for-speculators writes rows by the library datasets, which is not installed; pip install datasets") from None
    return datasets


def final_gain(checkpoint: Checkpoint) -> Tensor:
    """What the target's final norm multiplies by [hidden], float32.

    Raises:
        BadInputError: the target has no such norm, so the library cannot make its law of hidden states either.

    """
    config = checkpoint.config
    if NORM not in checkpoint.tensors:
        raise BadInputError(
            f"{printable(str(checkpoint.folder))} has no {NORM}, which the speculators library needs; train the head here instead"
        )
    weight = checkpoint.read(NORM, shape=(nested_size(config, "hidden_size"),), dtype=torch.float32, device=torch.device("cpu"))
    return 1 + weight if config.get("model_type") in ONE_PLUS else weight


def write_speculators_data(
    conversations: Sequence[Conversation],
    vocabulary: DraftVocabulary,
    *,
    vocab: int,
    gain: Tensor,
    folder: Path,
    rng: np.random.Generator,
) -> None:
    """Write rows, hidden states and draft vocabulary to `folder`, in an order drawn at random: the library holds out the last rows.

    `vocab` is the target's; every conversation has an answer of two tokens or more.

    Raises:
        BadInputError: `datasets` is not installed, or the folder cannot be written to.

    """
    library = data_set_library()
    make_folder(folder / STATES)
    columns: dict[str, list[Any]] = {"input_ids": [], "loss_mask": [], "seq_len": []}
    for row, number in enumerate(rng.permutation(len(conversations)).tolist()):
        each = conversations[number]
        read = each.tokens[:-1]
        columns["input_ids"].append(read.numpy())
        columns["loss_mask"].append((torch.arange(read.shape[0]) >= each.prompt_tokens).to(torch.int64).numpy())
        columns["seq_len"].append(read.shape[0])
        states = {"token_ids": read, "hidden_states": _states(each, gain)}
        save_whole(states, folder / STATES / f"hs_{row}.safetensors", metadata={})
    np.save(folder / f"d2t-{vocabulary.ids.shape[0]}.npy", vocabulary.d2t.numpy())
    np.save(folder / f"t2d-{vocabulary.ids.shape[0]}.npy", vocabulary.t2d(vocab).numpy())
    library.Dataset.from_dict(columns).with_format("torch").save_to_disk(str(folder))


def _states(each: Conversation, gain: Tensor) -> Tensor:
    """The auxiliary layers' states and the last layer's, as the library reads them [tokens − 1, layers + 1, hidden]."""
    hidden = gain.shape[0]
    last = torch.where(gain == 0, torch.zeros(()), each.features.float() / gain).to(each.aux.dtype)
    return torch.cat((each.aux.unflatten(-1, (-1, hidden)), last[:, None]), dim=1)
