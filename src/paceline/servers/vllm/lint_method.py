"""Which method vLLM drafts with, where a configuration says so and where it leaves vLLM to guess, and whether that method works.

vLLM guesses from the model's name, then from its checkpoint, and goes by the name even where another method is stated. Order of the
guesses: 0.32.0 config/speculative.py:1328.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from paceline.checkpoint import Checkpoint
from paceline.data.tables import table
from paceline.errors import BadInputError, printable
from paceline.servers.lint import ConfigFinding, Severity
from paceline.servers.lint_tables import finding
from paceline.servers.vllm.versions import Version, holds, need_method, usable_methods

__all__ = ["CHECKPOINT_METHODS", "Chosen", "chosen_method", "method_findings", "predicted_layers"]

MTP = "mtp"
DRAFT_MODEL = "draft_model"
CHECKPOINT_METHODS = ("draft_model", "eagle", "eagle3", "medusa", "mlp_speculator", "mtp", "deepseek_mtp", "dflash", "dspark")
NGRAMS = ("ngram", "[ngram]")
BY_NAME = (("eagle-", "eagle"), ("eagle3", "eagle3"), ("dflash", "dflash"), ("dspark", "dspark"))
BY_CLASS = (
    ("MuseGlimmerAssistantModel", "dflash"),
    ("Qwen3DSparkModel", "dspark"),
    ("Qwen3OmniDSparkModel", "dspark"),
    ("Gemma4DSparkModel", "dspark"),
)
MEDUSA = "medusa"
BY_TYPE = (MEDUSA, "mlp_speculator")
AS_STATED = ("custom_class", "dflash", "dspark", "eagle", "eagle3", "extract_hidden_states", "ngram", "ngram_gpu", "suffix")
DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
DOTTED_SINCE = (0, 26, 0)
RENAMED_SINCE = (0, 11, 0)
DETECTION_SINCE = (0, 15, 0)
NAMED_SINCE = (0, 8, 2)  # before, flags switch speculation on and name no method
LAST_V0 = (0, 9, 2)

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The method that vLLM drafts with.

    Attributes:
        name: as vLLM calls it.
        stated: what the configuration states, None where it leaves vLLM to guess.
        sure: whether it stays this one whatever the draft's checkpoint holds.

    """

    name: str
    stated: str | None
    sure: bool


def chosen_method(speculative: Mapping[str, Any], *, target: str | None, draft: Checkpoint | None, version: Version) -> Chosen:
    """The method of a configuration (its keys normalised); `target` is the served model's name, `draft` what drafts, where it is known."""
    method, model = speculative.get("method"), speculative.get("model")
    stated = method if isinstance(method, str) else None
    name = stated or _by_model(model, version)
    if _alias(name, version):
        name = MTP
    if name in AS_STATED:
        return Chosen(name=name, stated=stated, sure=True)
    drafting = model if isinstance(model, str) else target if name == MTP else None
    if drafting is None:
        return Chosen(name=name, stated=stated, sure=True)
    known = usable_methods(version)
    for part, other in BY_NAME:
        if part in drafting.lower() and other in known:
            return Chosen(name=other, stated=stated, sure=True)
    # a checkpoint that is said to be Medusa's is read as one, whatever it says itself
    own = None if draft is None or name == MEDUSA else _by_checkpoint(draft, version)
    return Chosen(name=own or name, stated=stated, sure=draft is not None or name == MEDUSA)


def predicted_layers(checkpoint: Checkpoint, version: Version) -> int | None:
    """How many tokens ahead the checkpoint's own layers predict (MTP): 0 where it has them and does not say, None where it has none."""
    row = _mtp_row(checkpoint, version)
    return None if row is None else checkpoint.size(row["counted_by"]) or int(row["layers"])


def _mtp_row(checkpoint: Checkpoint, version: Version) -> Row | None:
    kind, classes = checkpoint.config.get("model_type"), checkpoint.architectures[:1]
    rows: Sequence[Row] = table("servers/vllm_lint")["mtp"]
    return next(
        (row for row in rows if holds(row, version) and (row.get("model_type") == kind or row.get("architecture") in classes)), None
    )


def _by_model(model: object, version: Version) -> str:
    """What vLLM takes a model for without a method."""
    if not isinstance(model, str):
        return DRAFT_MODEL
    if version.answers >= DOTTED_SINCE and DOTTED.fullmatch(model):
        return "custom_class"
    return "ngram" if model in NGRAMS else DRAFT_MODEL


def _by_checkpoint(draft: Checkpoint, version: Version) -> str | None:
    for name, method in BY_CLASS:
        if name in draft.architectures and method in usable_methods(version):
            return method
    kind = draft.config.get("model_type")
    if kind in BY_TYPE:
        return str(kind)
    multi_token = MTP if version.answers >= RENAMED_SINCE else "deepseek_mtp"
    return multi_token if _mtp_row(draft, version) is not None else None


def _names(version: Version) -> Mapping[str, Row]:
    return {row["name"]: row for row in table("servers/vllm_lint")["names"] if holds(row, version)}


def _alias(name: str, version: Version) -> bool:
    return version.answers >= RENAMED_SINCE and "alias_of" in _names(version).get(name, {})


def method_findings(chosen: Chosen, *, model: object, draft: Checkpoint | None, version: Version) -> Iterator[ConfigFinding]:
    """What is wrong with the method, or with leaving it to vLLM."""
    stated = chosen.stated
    if stated is not None and version.answers >= NAMED_SINCE and stated not in _names(version):
        yield _unknown(stated, version)
        return
    if isinstance(model, str) and chosen.name in CHECKPOINT_METHODS and _near_ngram(model):
        message = f"{printable(model)} is not [ngram]: vLLM takes it for a draft model's name"
        remedy = 'write "method": "ngram"' if version.answers >= NAMED_SINCE else "write --speculative-model '[ngram]'"
        yield finding(Severity.ERROR, "method_typo", "model", message, remedy=remedy, row=None)
        return
    if stated is None:
        yield _guessed(chosen, version)
    elif stated != chosen.name and _alias(stated, version) and chosen.name == MTP:
        yield finding(
            Severity.INFO, "renamed_method", "method", f"method {stated} is an old name of mtp", remedy="write mtp", row={"since": "0.11.0"}
        )
    elif stated != chosen.name:
        yield finding(
            Severity.WARNING,
            "overruled_method",
            "method",
            f"vLLM goes by the draft's name or checkpoint ({printable(model)}): it drafts with {chosen.name}, not with {stated}",
            remedy=f"write method {chosen.name}, or rename the draft's folder if that is not what it is",
            row=None,
        )
    yield from _unusable(chosen, draft, version)


def _unknown(stated: str, version: Version) -> ConfigFinding:
    known = _names(version)
    rows = [row for row in table("servers/vllm_lint")["names"] if row["name"] == stated]
    span = "".join(f"; it is from {row['since']} to {row.get('until', 'now')}" for row in rows)
    near = get_close_matches(stated.strip("[]").replace("-", "_"), sorted(known), n=3, cutoff=0.5)
    return finding(
        Severity.ERROR,
        "unknown_method",
        "method",
        f"method {printable(stated)} is not known in vLLM {version}{span}",
        remedy="serve a version that knows it"
        if rows
        else f"write {' or '.join(near)}"
        if near
        else f"write one of {', '.join(usable_methods(version))}",
        row=None,
    )


def _guessed(chosen: Chosen, version: Version) -> ConfigFinding:
    """What to know where no method is stated."""
    old = version.answers <= LAST_V0
    fall_back = (
        "; up to 0.9.2 that is served by the old V0 engine, whose counters mean something else" if old and chosen.name != "ngram" else ""
    )
    what = chosen.name if chosen.sure else f"{chosen.name}, unless the draft's checkpoint makes it another"
    return finding(
        Severity.WARNING,
        "implied_method",
        "method",
        f"no method is stated, and vLLM takes {what}{fall_back}",
        remedy=f'write "method": "{chosen.name}"' if chosen.sure else "write the method out",
        row={"until": "0.9.2" if fall_back else None},
    )


def _near_ngram(model: str) -> bool:
    """Whether somebody meant n-grams: what is written in brackets is no model's name."""
    return "/" not in model and bool(get_close_matches(model.strip("[]").casefold(), ["ngram"], cutoff=0.75))


def _unusable(chosen: Chosen, draft: Checkpoint | None, version: Version) -> Iterator[ConfigFinding]:
    """A method that this version takes and does not draft with."""
    known = {row["name"] for row in table("servers/vllm")["methods"]}
    if chosen.name in known and version.answers >= NAMED_SINCE:
        try:
            need_method(chosen.name, version)
        except BadInputError as error:
            yield finding(
                Severity.ERROR, "method_does_not_work", "method", str(error), remedy="take another method, or another version", row=None
            )
            return
    asks_for_layers = chosen.name == MTP and draft is not None and version.answers >= DETECTION_SINCE
    if asks_for_layers and draft is not None and predicted_layers(draft, version) is None:
        yield finding(
            Severity.ERROR,
            "no_mtp_layers",
            "method",
            f"{printable(draft.name)} has no layers that predict ahead and vLLM {version} knows: it refuses method mtp",
            remedy="take another method, or a version that knows this model",
            row={"since": "0.15.0"},
        )
