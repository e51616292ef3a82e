"""What a server's configuration says, whatever shape it came in: a command line, JSON, YAML, a compose file or a Kubernetes manifest.

Nothing is resolved: a value that a template, a shell or a kubelet would fill in stays as it is written, and is `left_open`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paceline.errors import BadInputError, printable

__all__ = ["ENGINES", "ServedConfig", "left_open"]

ENGINES = ("llamacpp", "sglang", "tensorrt_llm", "vllm")
# {{ Helm, Jinja }}, ${SHELL}, $SHELL, $(KUBERNETES) and <fill this in>
OPEN = re.compile(r"\{\{|\$\{|\$\(|\$[A-Za-z_@*]|`[^`]+`|^<[A-Za-z]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedConfig:
    """One server as it is configured.

    `engine` is None where nothing names it. `target` is the model that is served. `flags` has each option under its long spelling with the
    two leading dashes: the text of its value, True for a bare one, a tuple where it has several values or stands more than once.
    `speculative` is the parsed JSON of --speculative-config or the YAML block of that name, None where there is none or it does not parse
    (its text is then among the flags). `environment` holds what is set for the server, `others` the words that are neither the target nor
    of any option, `where` the document, container or line it is from.
    """

    engine: str | None
    target: str | None
    flags: Mapping[str, str | bool | tuple[str, ...]]
    speculative: Mapping[str, Any] | None
    environment: Mapping[str, str]
    image: str | None
    others: tuple[str, ...]
    where: str

    def __post_init__(self) -> None:
        """Reject an engine that is none of ours, and flags that are not spelt out.

        Raises:
            BadInputError: with the name.

        """
        if self.engine is not None and self.engine not in ENGINES:
            raise BadInputError(f"engine {printable(self.engine)} is none of {', '.join(ENGINES)}")
        for name in self.flags:
            if not name.startswith("--"):
                raise BadInputError(f"flag {printable(name)} is not a long option such as --max-num-seqs")


def left_open(value: object) -> bool:
    """Whether a value is known only once a template, a shell or a person has filled it in."""
    if isinstance(value, tuple):
        return any(left_open(each) for each in value)
    return isinstance(value, str) and OPEN.search(value) is not None
