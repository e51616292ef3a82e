"""What llama-server does with a configuration: exit, ignore something in it, or serve it and not draft.

It is silent where it matters: a draft model without --spec-type is loaded and not used, and so is a speculative type whose draft cannot be
initialised; `none` among several types switches all of them off; a shortest draft above the longest drafts nothing, while /slots says
`speculative`. A variable LLAMA_ARG_… stands for its option where that is not given.

Source: llama-server b11434, its help and its answers to each value (data/servers/llamacpp.toml).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from paceline.data.tables import table
from paceline.errors import printable
from paceline.servers.lint import ConfigFinding, Severity, worst_first
from paceline.servers.lint_tables import (
    Release,
    combination_findings,
    finding,
    flag_findings,
    holds,
    number_at,
    open_findings,
    parse_release,
    plain_server,
    value_at,
)
from paceline.servers.served_config import ServedConfig, left_open

__all__ = ["lint", "llamacpp_version"]

TYPE, DEFAULT = "--spec-type", "--spec-default"
DRAFTS = ("--spec-draft-model", "--spec-draft-hf")
N_MAX, N_MIN = "--spec-draft-n-max", "--spec-draft-n-min"
SYNTH_LEN, SYNTH_RATES = "--spec-synth-len", "--spec-synth-rates"
NEW_NAMES = {"since": "9174"}  # see the table: #22397 and #22964
DRAFT_TOKENS = 3  # the default of --spec-draft-n-max


def llamacpp_version(text: str) -> Release:
    """The version as it compares, with a caution where it was not read.

    Raises:
        BadInputError: `text` is no version.

    """
    return parse_release(text, read=table("servers/llamacpp")["read"], engine="llama-server")


def lint(config: ServedConfig, release: Release) -> tuple[ConfigFinding, ...]:
    """What llama-server of this build makes of the configuration, worst first; empty where nothing is to be said."""
    rows = table("servers/llamacpp")
    stood = _by_environment(config)
    # a variable is read even where its option is given too, and a bad value in it ends the server all the same
    behind = replace(config, flags={name: value for name, value in stood.items() if name in config.flags})
    config = replace(config, flags=stood | dict(config.flags))
    types = _types(config)
    method = next((each for each in types if each != "none"), None) if "none" not in types else None
    found = _unknown_flags(config, rows, release)
    for each in (config, behind):
        found += flag_findings(each, rows["flags"], release, engine="llama-server")
    if holds(NEW_NAMES, release):
        found += _switched_on(config, types, rows["types_with_draft"])
        found += [] if method is None else _lengths(config)
        found += _synthetic(config, method)
    found += combination_findings(config, rows["combinations"], release, method=method)
    return worst_first((*found, *open_findings(config)))


def _by_environment(config: ServedConfig) -> dict[str, str | bool | tuple[str, ...]]:
    """The options that variables stand for."""
    spellings = table("servers/spellings")["llamacpp"]
    names, bare = spellings["environment"], spellings["bare"]
    return {names[name]: True if names[name] in bare else value for name, value in config.environment.items() if name in names}


def _types(config: ServedConfig) -> tuple[str, ...]:
    """The speculative types that are asked for, in order; of an open value none."""
    value = value_at(config, TYPE, None)
    named = tuple(value.split(",")) if isinstance(value, str) and not left_open(value) else ()
    return named or (("ngram-mod",) if DEFAULT in config.flags else ())


def _unknown_flags(config: ServedConfig, rows: Mapping[str, Any], release: Release) -> list[ConfigFinding]:
    """Options that no build has, or that have a value too many or too few: the server does not start.

    That an option is unknown is told of the build of which all are known, and of --option=value in any.
    """
    spellings = table("servers/spellings")["llamacpp"]
    judged = {row["name"] for row in rows["flags"]}
    known = judged | set(spellings["spellings"])
    found = []
    for name, value in config.flags.items():
        option, equals, rest = name.partition("=")
        if name in judged:
            continue
        if name in known:
            found += _value_too_many(name, value, bare=name in spellings["bare"])
        elif equals:
            message = f"llama-server takes no {printable(name)}: an option and its value are two words"
            found.append(finding(Severity.ERROR, "unknown_flag", name, message, remedy=f"write {option} {rest}", row=None))
        elif holds({"since": rows["all_flags_known_at"]}, release):
            near = get_close_matches(name, known, n=1, cutoff=0.7)
            message = f"llama-server has no option {printable(name)} and does not start with it"
            remedy = f"write {near[0]}" if near else "leave it out"
            found.append(finding(Severity.ERROR, "unknown_flag", name, message, remedy=remedy, row=None))
    return found


def _value_too_many(name: str, value: object, *, bare: bool) -> list[ConfigFinding]:
    if bare == (value is True):
        return []
    if bare:
        message, remedy = f"{name} takes no value, and llama-server does not start with {printable(value)} behind it", f"write {name} alone"
    else:
        message, remedy = f"{name} needs a value", "give its value, as a word of its own"
    return [finding(Severity.ERROR, "bad_value", name, message, remedy=remedy, row=None)]


def _switched_on(config: ServedConfig, types: Sequence[str], with_draft: Sequence[str]) -> list[ConfigFinding]:
    """Whether it drafts at all, and has the draft that it needs."""
    draft = next((name for name in DRAFTS if name in config.flags), None)
    if not types and TYPE in config.flags:
        return []
    if not types or "none" in types:
        given = sorted(name for name in config.flags if name.startswith("--spec-") and name != TYPE)
        remedy = f"add {TYPE} draft-simple" if draft is not None else f"add {TYPE} with a type, such as ngram-mod"
        if len(types) > 1:
            message = f"{TYPE} {printable(','.join(types))} has none among its types, which switches all of them off"
            return [finding(Severity.ERROR, "not_switched_on", TYPE, message, remedy="leave none out", row=NEW_NAMES)]
        if draft is not None:
            message = f"{draft} {printable(config.flags[draft])} without {TYPE}: the draft is loaded, takes memory, and is not used"
            return [finding(Severity.ERROR, "not_switched_on", TYPE, message, remedy=remedy, row=NEW_NAMES)]
        if given:
            message = f"{', '.join(given)} without {TYPE}: the server starts and does not speculate"
            return [finding(Severity.ERROR, "not_switched_on", TYPE, message, remedy=remedy, row=NEW_NAMES)]
        return plain_server(config, TYPE, remedy=remedy, row=NEW_NAMES)
    needing = [each for each in types if each in with_draft]
    if needing and draft is None:
        message = f"{TYPE} {needing[0]} without a draft model: the server logs one line and serves without drafting"
        return [finding(Severity.ERROR, "draft_missing", DRAFTS[0], message, remedy=f"add {DRAFTS[0]}", row=NEW_NAMES)]
    if draft is not None and not needing and "draft-mtp" not in types:
        message = f"{draft} {printable(config.flags[draft])} is not used by {', '.join(types)}"
        remedy = f"leave it out, or add draft-simple to {TYPE}"
        return [finding(Severity.WARNING, "ignored", draft, message, remedy=remedy, row=NEW_NAMES)]
    if draft is None and "draft-mtp" in types:
        message = "draft-mtp without a draft model needs a target whose file has MTP layers, else the server exits when it has loaded it"
        return [finding(Severity.INFO, "draft_from_target", DRAFTS[0], message, remedy="check that it starts", row=NEW_NAMES)]
    return []


def _lengths(config: ServedConfig) -> list[ConfigFinding]:
    """A shortest draft above the longest one: measured, it drafts nothing."""
    shortest, longest = number_at(config, N_MIN), number_at(config, N_MAX)
    longest = DRAFT_TOKENS if longest is None and N_MAX not in config.flags else longest
    if shortest is None or longest is None or shortest <= longest:
        return []
    message = (
        f"{N_MIN} {shortest:g} is above {N_MAX} {longest:g}: every draft is dropped as too short, and /slots says speculative all the same"
    )
    return [finding(Severity.ERROR, "no_drafts", N_MIN, message, remedy=f"set {N_MIN} to at most {longest:g}", row=NEW_NAMES)]


def _synthetic(config: ServedConfig, method: str | None) -> list[ConfigFinding]:
    """Made-up acceptance that does not fit the draft length: the server exits when it has loaded the model."""
    field = next((name for name in (SYNTH_LEN, SYNTH_RATES) if name in config.flags), None)
    if field is None:
        return []
    fault = None
    if method is None and not left_open(value_at(config, TYPE, None)):
        fault = f"needs a drafter, and {TYPE} switches none on"
    depth = number_at(config, N_MAX) if N_MAX in config.flags else DRAFT_TOKENS
    if method is not None and method.startswith("draft-") and depth is not None:
        length = number_at(config, SYNTH_LEN)
        if length is not None and not 1 <= length <= depth + 1:
            fault = f"{length:g} is not between 1 and {depth + 1:g}, the longest draft and the bonus token"
        fault = fault or _rates_fault(value_at(config, SYNTH_RATES, None), int(depth))
    if fault is None:
        return []
    message = f"{field} {fault}: the server exits when it has loaded the model"
    remedy = f"give a length of 1 to K + 1, or K falling rates, K being {N_MAX}"
    return [finding(Severity.ERROR, "synthetic_out_of_range", field, message, remedy=remedy, row=NEW_NAMES)]


def _rates_fault(value: object, depth: int) -> str | None:
    if not isinstance(value, str) or left_open(value):
        return None
    try:
        rates = [float(each) for each in value.split(",")]
    except ValueError:
        return f"{printable(value)} is no list of numbers"
    if len(rates) != depth:
        return f"{printable(value)} has {len(rates)} rates for a draft of {depth}"
    if not all(0 <= each <= 1 for each in rates) or sorted(rates, reverse=True) != rates:
        return f"{printable(value)} is not a falling row of probabilities"
    return None
