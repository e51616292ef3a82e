"""A document as YAML in which every text is data: quoted throughout, so that no reader takes `1e3`, `on` or `~` for anything else."""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

__all__ = ["yaml_text"]

NO_FOLDING = 1 << 20


class _Quoted(str):
    """A value that is written between double quotes."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # the library has no types
    """No anchors: two equal lists are written twice."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the library's signature
        """Whether a value is written where it stands."""
        return True


_Dumper.add_representer(_Quoted, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style='"'))


def yaml_text(*documents: Mapping[str, Any]) -> str:
    """The documents in one text, keys in their order."""
    text: str = yaml.dump_all(
        [_quoted(each) for each in documents],
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=False,  # what could steer a terminal or hide itself is written as an escape
        width=NO_FOLDING,
        explicit_start=len(documents) > 1,
    )
    return text


def _quoted(value: Any) -> Any:
    if isinstance(value, str):
        return _Quoted(value)
    if isinstance(value, Mapping):
        return {key: _quoted(each) for key, each in value.items()}
    return [_quoted(each) for each in value] if isinstance(value, Sequence) else value
