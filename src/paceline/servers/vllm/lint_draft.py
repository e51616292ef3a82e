"""What vLLM refuses of a draft and a target before it loads either, as far as their config.json tells.

What it does not refuse and should be refused all the same (another tokenizer, no `d2t`) is told by `servers/checkpoint_pair`.
"""

import re
from collections.abc import Iterator

from paceline.data.tables import table
from paceline.errors import printable
from paceline.servers.lint import ConfigFinding, Severity
from paceline.servers.lint_tables import finding
from paceline.servers.vllm.lint_case import Case, Drafting
from paceline.servers.vllm.lint_method import CHECKPOINT_METHODS
from paceline.servers.vllm.versions import holds

__all__ = ["draft_findings"]

PREFIXED = {"eagle": "Eagle", "eagle3": "Eagle3", "dflash": "DFlash"}
KEPT = {"eagle": ("Eagle", "\0"), "eagle3": ("Eagle3", "Eagle3"), "dflash": ("DFlash", "DFlash")}
LONGER_ALLOWED = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
SIZE_IN_NAME = re.compile(r"(?<![A-Za-z0-9.])([0-9]+(?:\.[0-9]+)?)[bB](?![A-Za-z0-9])")
MASKS = ("pard_token", "ptd_token_id", "mask_token_id")


def draft_findings(case: Case, drafting: Drafting) -> Iterator[ConfigFinding]:
    """What is refused."""
    if drafting.method in CHECKPOINT_METHODS:
        yield from _tensor_parallel(case, drafting)
        yield from _length(case, drafting)
    yield from _heads(case, drafting)
    if drafting.method == "draft_model":
        yield from _vocabulary(case, drafting)
        yield from _size(case, drafting)
        yield from _mask(drafting)
    yield from _class(case, drafting)
    if drafting.method == "eagle3":
        yield from _listed_target(case)


def _tensor_parallel(case: Case, drafting: Drafting) -> Iterator[ConfigFinding]:
    stated, gpus = drafting.keys.values.get("draft_tensor_parallel_size"), case.tensor_parallel
    field = "draft_tensor_parallel_size"
    if stated is not None and stated not in (1, gpus):
        message = f"the draft over {stated} GPUs and the target over {gpus}: the server takes 1 or the target's number"
        yield _error("draft_tensor_parallel", field, message, f"leave it out, or write {gpus}")
    elif drafting.method == "draft_model" and case.draft_tensor_parallel != gpus and case.version.answers >= (0, 15, 0):
        message = f"a draft model over {stated} GPUs beside a target over {gpus} fails when it is loaded"
        yield _error("draft_tensor_parallel_differs", field, message, f"leave it out, or write {gpus}", since="0.15.0")


def _length(case: Case, drafting: Drafting) -> Iterator[ConfigFinding]:
    stated = drafting.keys.values.get("max_model_len")
    if stated is None:
        return
    served = case.number("--max-model-len") or (case.target.max_positions if case.target is not None else None)
    own = None if drafting.draft is None or case.config.environment.get(LONGER_ALLOWED) == "1" else drafting.draft.max_positions
    for whose, length in (("the target", served), ("the draft", own)):
        if length is not None and stated > length:
            message = f"max_model_len = {stated} is above {length}, which {whose} takes: the server refuses to start"
            yield _error("draft_longer_than_allowed", "max_model_len", message, f"leave it out, or write at most {length}")


def _heads(case: Case, drafting: Drafting) -> Iterator[ConfigFinding]:
    pairs = [("target", case.target, case.tensor_parallel, "--tensor-parallel-size")]
    if drafting.method in CHECKPOINT_METHODS and drafting.draft is not None and drafting.draft is not case.target:
        pairs.append(("draft", drafting.draft, case.draft_tensor_parallel, "draft_tensor_parallel_size"))
    for whose, checkpoint, gpus, field in pairs:
        heads = None if checkpoint is None else checkpoint.size("num_attention_heads")
        if heads is not None and heads % gpus:
            message = f"{heads} attention heads of the {whose} cannot be split over {gpus} GPUs: the server refuses to start"
            remedy = "split it over a number that divides them" + (", 1 where the method takes it" if whose == "draft" else "")
            yield _error("heads_do_not_divide", field, message, remedy)


def _vocabulary(case: Case, drafting: Drafting) -> Iterator[ConfigFinding]:
    if case.target is None or drafting.draft is None or drafting.keys.values.get("use_heterogeneous_vocab"):
        return
    ours, theirs = case.target.vocabulary, drafting.draft.vocabulary
    if ours is not None and theirs is not None and ours != theirs and case.version.answers >= (0, 15, 0):
        message = f"the target's vocabulary has {ours} entries and the draft's {theirs}: the server refuses to start, be it only padding"
        remedy = "take a draft with the target's vocabulary size, or pad the smaller embedding and output layer with zeros"
        yield _error("vocabulary_sizes_differ", "model", message, remedy, since="0.15.0")


def _size(case: Case, drafting: Drafting) -> Iterator[ConfigFinding]:
    """A draft model of the target's size, as far as the names tell."""
    ours, theirs = (_parameters(each) for each in (case.target_name, drafting.model))
    if ours is not None and theirs is not None and theirs >= ours:
        yield finding(
            Severity.WARNING,
            "draft_as_large_as_target",
            "model",
            f"the draft {printable(drafting.model)} is as large as the target {printable(case.target_name)}: no acceptance makes up for it",
            remedy="take a draft of at most a tenth of the target",
            row=None,
        )


def _parameters(name: str | None) -> float | None:
    """Billions of parameters that a model's name states."""
    match = SIZE_IN_NAME.search(name.rpartition("/")[2]) if name else None
    return None if match is None else float(match[1])


def _mask(drafting: Drafting) -> Iterator[ConfigFinding]:
    if not drafting.keys.values.get("parallel_drafting") or drafting.draft is None:
        return
    if not any(drafting.draft.stated(each) is not None for each in MASKS):
        message = f"parallel drafting needs one of {', '.join(MASKS)} in the draft's config.json: this draft fails when it is loaded"
        yield _error(
            "no_mask_token", "parallel_drafting", message, "leave parallel_drafting out, or take a draft trained for it", since="0.16.0"
        )


def _class(case: Case, drafting: Drafting) -> Iterator[ConfigFinding]:
    """A head of a class that vLLM has not, once the method's name is put before it."""
    row = next((each for each in table("servers/vllm_lint")["draft_classes"] if holds(each, case.version)), None)
    draft = drafting.draft
    if row is None or draft is None or draft.speculators_type is not None or drafting.method not in PREFIXED or not draft.architectures:
        return
    asked = [_prefixed(each, drafting.method) for each in draft.architectures]
    if not set(asked) & set(row["names"]):
        yield finding(
            Severity.ERROR,
            "unknown_draft_class",
            "model",
            f"vLLM {case.version} has no class {printable(asked[0])} to draft with: the server refuses to start",
            remedy="write the method that this checkpoint was trained for, or correct `architectures` in its config.json",
            row=row,
        )


def _prefixed(name: str, method: str) -> str:
    start, end = KEPT[method]
    kept = name.startswith(start) or name.endswith(end) or name == "LiLiCorrDraftModel"
    return name if kept else f"{PREFIXED[method]}{name}"


def _listed_target(case: Case) -> Iterator[ConfigFinding]:
    row = next((each for each in table("servers/vllm_lint")["eagle3_targets"] if holds(each, case.version)), None)
    kind = None if case.target is None else case.target.stated("model_type")
    if row is not None and isinstance(kind, str) and not any(each in kind for each in row["model_types"]):
        message = f"eagle3 drafts for {', '.join(row['model_types'])} in this version, not for {printable(kind)}: the server refuses"
        yield _error(
            "target_without_eagle3", "method", message, "upgrade to 0.22.0 or later, or take another method", since="0.8.5", until="0.21.0"
        )


def _error(code: str, field: str, message: str, remedy: str, *, since: str | None = None, until: str | None = None) -> ConfigFinding:
    return finding(Severity.ERROR, code, field, message, remedy=remedy, row={"since": since, "until": until})
