"""The numbers of a config.json that weights are made by: whole, positive, and no larger than any model's.

Somebody else wrote the file. A size that is none would end in a fault of ours, in a division by zero, or in all memory; so each is
looked at before anything is made, wherever it is nested.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from paceline.checkpoint import NESTED
from paceline.errors import BadInputError, is_count, printable

__all__ = ["need_possible_sizes", "nested_size", "positive_number", "stated_size"]

# Some four times what the largest published models have.
MOST = {
    "hidden_size": 1 << 17,
    "target_hidden_size": 1 << 17,
    "intermediate_size": 1 << 20,
    "num_attention_heads": 1 << 12,
    "num_key_value_heads": 1 << 12,
    "head_dim": 1 << 13,
    "num_hidden_layers": 1 << 10,
    "vocab_size": 1 << 22,
    "draft_vocab_size": 1 << 22,
    "max_position_embeddings": 1 << 30,
}
LARGEST_NUMBER = 1e30
REMEDY = "give the model's own config.json"


def need_possible_sizes(config: Mapping[str, Any]) -> None:
    """Nothing, where every size that the configuration states is one. Models whose layers differ state a list.

    Raises:
        BadInputError: with the field and its value.

    """
    for part in _parts(config):
        for name in [each for each in MOST if part.get(each) is not None]:
            for each in part[name] if isinstance(part[name], list) else [part[name]]:
                stated_size({name: each}, name)


def _parts(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield config
    for name in NESTED:
        if config.get(name) is not None:
            if not isinstance(config[name], Mapping):
                raise BadInputError(f"{name} is {printable(config[name])}, which is no object; {REMEDY}")
            yield config[name]


def stated_size(config: Mapping[str, Any], name: str) -> int:
    """The size of that name.

    Raises:
        BadInputError: it is missing, or no whole number from 1 to the most that is known.

    """
    if config.get(name) is None:
        raise BadInputError(f"the model configuration does not state {name}; {REMEDY}")
    value = config[name]
    if not is_count(value, least=1) or value > MOST[name]:
        raise BadInputError(f"{name} is {printable(value)}, which is no whole number from 1 to {MOST[name]:,}; {REMEDY}")
    return int(value)


def nested_size(config: Mapping[str, Any], name: str) -> int:
    """The size of that name, at the top of the configuration or nested in it.

    Raises:
        BadInputError: as for `stated_size`.

    """
    return stated_size(next((part for part in _parts(config) if part.get(name) is not None), config), name)


def positive_number(config: Mapping[str, Any], name: str, *, unstated: float) -> float:
    """The number of that name, `unstated` where there is none.

    Raises:
        BadInputError: it is no number above 0.

    """
    value = config.get(name)
    if value is None:
        return unstated
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < LARGEST_NUMBER:
        raise BadInputError(f"{name} is {printable(value)}, which is no number above 0; {REMEDY}")
    return float(value)
