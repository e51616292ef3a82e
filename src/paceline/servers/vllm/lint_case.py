"""A vLLM server's configuration as its lint sees it: what is stated anywhere, and what follows from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paceline.checkpoint import Checkpoint
from paceline.data.tables import table
from paceline.errors import printable
from paceline.servers.lint import ConfigFinding, Severity
from paceline.servers.lint_tables import finding
from paceline.servers.served_config import ServedConfig, left_open
from paceline.servers.vllm.lint_keys import Keys, normalised
from paceline.servers.vllm.lint_method import Chosen
from paceline.servers.vllm.lint_values import NOT_TAKEN, taken_for
from paceline.servers.vllm.versions import Version, parse_version

__all__ = ["Case", "Drafting", "stated_speculation"]

SINGLE_SINCE = "0.22.0"
NOTHING = ("", "None", "null")
NOTHING_SINCE = (0, 32, 0)  # engine/arg_utils.py:172, read there; earlier versions were not


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """How a server drafts: the method, what it states of it, and the draft's checkpoint (for MTP layers of the target the target's)."""

    chosen: Chosen
    keys: Keys
    draft: Checkpoint | None

    @property
    def method(self) -> str:
        """The method, as vLLM calls it."""
        return self.chosen.name

    @property
    def method_left_open(self) -> bool:
        """Whether a method is stated that cannot be read: something else fills it in, or it is no text."""
        return self.chosen.stated is None and "method" in self.keys.named

    @property
    def draft_tokens(self) -> int | None:
        """num_speculative_tokens, None where none that vLLM takes is stated."""
        return self.keys.values.get("num_speculative_tokens")

    @property
    def model(self) -> str | None:
        """What is stated to draft with."""
        return self.keys.values.get("model")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One server, in one version. `drafting` is None where it does not speculate, `requests_use` what its requests are said to use."""

    version: Version
    config: ServedConfig
    target: Checkpoint | None
    drafting: Drafting | None
    requests_use: frozenset[str]

    def number(self, flag: str) -> int | None:
        """The flag's whole number, None where it is not given or no number."""
        value = taken_for("integer", self.config.flags.get(flag))
        return None if value is NOT_TAKEN or isinstance(self.config.flags.get(flag), bool) else int(value)

    @property
    def tensor_parallel(self) -> int:
        """GPUs that the target is split over."""
        return self.number("--tensor-parallel-size") or 1

    @property
    def draft_tensor_parallel(self) -> int:
        """GPUs that the draft is split over: as many as the target unless it states fewer."""
        stated = self.drafting.keys.values.get("draft_tensor_parallel_size") if self.drafting is not None else None
        return stated or self.tensor_parallel

    @property
    def target_name(self) -> str | None:
        """The served model as the server is told, or the folder that it is in."""
        return self.config.target or (self.target.name if self.target is not None else None)


def stated_speculation(config: ServedConfig, version: Version) -> tuple[dict[str, Any] | None, tuple[ConfigFinding, ...]]:
    """The speculative configuration as its keys, wherever they stand, and what is wrong with where they stand; None without any."""
    found: list[ConfigFinding] = []
    stated = None if config.speculative is None else normalised(config.speculative, version)
    given = config.flags.get("--speculative-config")
    last = given[-1] if isinstance(given, tuple) and given else given
    if stated is None and left_open(last):
        return None, (_open_block(last),)
    if isinstance(given, tuple):
        found.append(_block_twice(len(given)))
    if stated is None and isinstance(last, str) and last.strip() in NOTHING and version.answers >= NOTHING_SINCE:
        given = None
    if stated is None and given is not None:
        found.append(_not_json(last))
        stated = {}
    if stated is not None and version.answers < (0, 8, 2):
        found.append(_flag("--speculative-config", "is not known before 0.8.2", "use the flags of that time, or upgrade", until="0.8.1"))
    keys = {**stated} if stated is not None else {}
    for group, ends in (("legacy", True), ("single", False)):
        rows: Mapping[str, Any] = table("servers/vllm_lint")[group]
        singly = {key: config.flags[flag] for flag, key in rows["flags"].items() if flag in config.flags}
        flags = [flag for flag in rows["flags"] if flag in config.flags]
        bound = parse_version(rows["until" if ends else "since"])
        if flags and (version.answers > bound if ends else version.answers < bound):
            found += [_misplaced(flag, rows["flags"][flag], rows) for flag in flags]
        found += [_twice(flag, rows["flags"][flag]) for flag in flags if rows["flags"][flag] in keys]
        keys |= singly
    return (keys if stated is not None or keys else None), tuple(found)


def _open_block(text: object) -> ConfigFinding:
    message = f"--speculative-config is {printable(text)}, which something else fills in: not checked"
    remedy = "give the JSON itself and lint again"
    return finding(Severity.INFO, "left_open", "--speculative-config", message, remedy=remedy, row=None)


def _block_twice(times: int) -> ConfigFinding:
    message = f"--speculative-config stands {times} times; the last one counts"
    return finding(Severity.WARNING, "given_twice", "--speculative-config", message, remedy="keep one", row=None)


def _not_json(text: object) -> ConfigFinding:
    return _flag("--speculative-config", f"{text!r:.80} is not a JSON object", 'write it like \'{"method": "ngram", …}\', in single quotes')


def _misplaced(flag: str, key: str, rows: Mapping[str, Any]) -> ConfigFinding:
    if "until" in rows:
        return _flag(flag, "is gone since 0.8.3, and the server refuses to start", f'write "{key}" in --speculative-config', since="0.8.3")
    return _flag(
        flag,
        f"is not known before {rows['since']}, and the server refuses to start",
        f'write "{key}" in --speculative-config',
        until="0.21.0",
    )


def _twice(flag: str, key: str) -> ConfigFinding:
    return finding(
        Severity.ERROR,
        "stated_twice",
        flag,
        f'{flag} and "{key}" in --speculative-config state the same: the server refuses',
        remedy="leave one of them out",
        row={"since": SINGLE_SINCE},
    )


def _flag(flag: str, message: str, remedy: str, *, since: str | None = None, until: str | None = None) -> ConfigFinding:
    return finding(Severity.ERROR, "flag_refused", flag, f"{flag}: {message}", remedy=remedy, row={"since": since, "until": until})
