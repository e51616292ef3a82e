"""Whether a draft's checkpoint fits a target's, before a server loads either.

A server checks little of this. What does not fit is refused late, crashes while serving, or loads and drafts tokens that are never
accepted. What a folder does not tell is not judged. Heads (EAGLE, EAGLE-3) have rules of their own: `eagle_head`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from paceline.checkpoint import Checkpoint
from paceline.errors import printable
from paceline.servers.draft_kind import CALLED, DRAFT_MODEL, EAGLE, EAGLE3, draft_kind
from paceline.servers.eagle_head import head_findings
from paceline.servers.lint import ConfigFinding, Severity, worst_first
from paceline.servers.lint_tables import finding

__all__ = ["pair_findings"]

FAMILIES = {
    DRAFT_MODEL: ("draft_model", "draft-model", "standalone", "draft-simple", "drafttarget", "draft_target"),
    EAGLE: ("eagle", "eagle2"),
    EAGLE3: ("eagle3", "draft-eagle3"),
}
SPECULATORS_SINCE = {"eagle3": (0, 10, 1), "dflash": (0, 20, 0), "peagle": (0, 22, 0), "dspark": (0, 25, 0), "dflash2": (0, 29, 0)}
PADDED_SHARE = 0.01  # vocabularies of one tokenizer differ by padding to a multiple of 64 to 512 rows
FEW_TOKENS_SHARE = 0.001  # a handful of added special tokens
AUXILIARY_LAYERS = 3

Parts = tuple[int, int, int]


def pair_findings(
    target: Checkpoint,
    draft: Checkpoint,
    *,
    engine: str,
    version: Parts | None,
    method: str | None,
    draft_tensor_parallel: int | None,
    max_model_len: int | None = None,
) -> tuple[ConfigFinding, ...]:
    """What does not fit between the two, worst first.

    Args:
        target: the folder that is served.
        draft: the folder that drafts.
        engine: vllm, sglang, llamacpp or tensorrt_llm.
        version: the server's, None where it is not known.
        method: as the engine names it; None where it is left to the engine's guess.
        draft_tensor_parallel: GPUs that the draft is split over, None where it is not stated.
        max_model_len: longest context the server is told to take, None for the target's own.

    """
    kind = draft_kind(draft)
    family = _family(method, engine) or kind
    pair = _Pair(target, draft, engine, version)
    found = [*_method(pair, method, kind), *_format(pair), *_length(pair, family, max_model_len)]
    found += _tensor_parallel(draft, draft_tensor_parallel)
    if family == DRAFT_MODEL:
        found += [*_vocabulary(pair), *_own_ends(draft), *_size(target, draft)]
    elif family in (EAGLE, EAGLE3):
        found += head_findings(target, draft, engine=engine, fused=AUXILIARY_LAYERS if family == EAGLE3 else None)
    return worst_first(tuple(found))


@dataclass(frozen=True, slots=True)
class _Pair:
    """Both folders, and where they are to be served."""

    target: Checkpoint
    draft: Checkpoint
    engine: str
    version: Parts | None


def _family(method: str | None, engine: str) -> str | None:
    """The kind of draft that a method's name asks for; None for a method without a rule here."""
    name = (method or "").casefold()
    if engine == "tensorrt_llm" and name == "eagle":  # its PyTorch backend takes the name for EAGLE-3
        return EAGLE3
    return next((family for family, names in FAMILIES.items() if name in names), None)


def _method(pair: _Pair, method: str | None, kind: str | None) -> Iterator[ConfigFinding]:
    asked = _family(method, pair.engine)
    if asked is not None and kind is not None and asked != kind:
        yield finding(
            Severity.ERROR,
            "method_of_another_draft",
            "method",
            f"method {printable(method)} expects {CALLED[asked]}, and {printable(pair.draft.name)} holds {CALLED[kind]}: it fails "
            "to load, or loads and is never accepted",
            remedy=f"write the method of {CALLED[kind]}, or give {CALLED[asked]}",
            row=None,
        )


def _format(pair: _Pair) -> Iterator[ConfigFinding]:
    kind = pair.draft.speculators_type
    if kind is None:
        return
    since = SPECULATORS_SINCE.get(kind)
    if pair.engine != "vllm":
        yield finding(
            Severity.WARNING,
            "speculators_format",
            "speculators_model_type",
            f"{printable(pair.draft.name)} is in the speculators format, which is vLLM's; {pair.engine} is not known to read it",
            remedy="take a head in the usual Hugging Face layout, or try it and look at the acceptance before anything else",
            row=None,
        )
    elif since is None or (pair.version is not None and pair.version < since):
        first = "no version read here" if since is None else f"vLLM {_written(since)}"
        yield finding(
            Severity.ERROR if since is not None else Severity.WARNING,
            "speculators_format",
            "speculators_model_type",
            f"speculators_model_type {printable(kind)} is read from {first} on",
            remedy="upgrade vLLM, or take a head in the usual Hugging Face layout",
            row=None,
        )
    yield from _verifier(pair)


def _verifier(pair: _Pair) -> Iterator[ConfigFinding]:
    """Whether a draft in the speculators format was trained for this target."""
    told = pair.draft.config.get("speculators_config")
    verifier = told.get("verifier") if isinstance(told, dict) else None
    name = verifier.get("name_or_path") if isinstance(verifier, dict) else None
    if isinstance(name, str) and name.rstrip("/").rpartition("/")[2].casefold() != pair.target.name.casefold():
        yield finding(
            Severity.WARNING,
            "other_verifier",
            "speculators_config.verifier.name_or_path",
            f"the draft was trained for {printable(name)}, and the target's folder is {printable(pair.target.name)}",
            remedy="make sure that both are one model; a head for another one is hardly accepted",
            row=None,
        )


def _length(pair: _Pair, family: str | None, max_model_len: int | None) -> Iterator[ConfigFinding]:
    served, known = max_model_len or pair.target.max_positions, pair.draft.max_positions
    if served is None or known is None or known >= served:
        return
    crashes = pair.engine == "vllm" and family != DRAFT_MODEL
    if pair.engine == "vllm" and family == DRAFT_MODEL:
        beyond = "the server does not draft at all"  # 0.32.0 v1/worker/gpu_model_runner.py:4288
    else:
        beyond = "the server was seen to crash (vllm#57941)" if crashes else "drafts are worse than none (sglang#6783)"
    yield finding(
        Severity.ERROR if crashes else Severity.WARNING,
        "draft_shorter_than_target",
        "max_model_len",
        f"the draft knows {known} positions and requests may have {served}: beyond the draft's end {beyond}",
        remedy=f"cap the server at {known} tokens (vLLM: --max-model-len {known}), in both arms, or take a draft with a longer context",
        row=None,
    )


def _tensor_parallel(draft: Checkpoint, gpus: int | None) -> Iterator[ConfigFinding]:
    heads = draft.size("num_attention_heads")
    if gpus is not None and heads is not None and heads % gpus:
        yield finding(
            Severity.ERROR,
            "draft_heads_do_not_divide",
            "draft_tensor_parallel_size",
            f"{heads} attention heads of the draft cannot be split over {gpus} GPUs",
            remedy="split the draft over a number of GPUs that divides them, 1 where the method takes it",
            row=None,
        )


def _vocabulary(pair: _Pair) -> Iterator[ConfigFinding]:
    """Whether both mean the same by a token, and then whether their output layers are of one size."""
    other = _other_tokens(pair.target, pair.draft)
    ours, theirs = pair.target.vocabulary, pair.draft.vocabulary
    sizes = f"the target's vocabulary is {ours} and the draft's {theirs}"
    if other is not None and other[0] > FEW_TOKENS_SHARE:
        yield finding(
            Severity.ERROR,
            "other_tokenizer",
            "model",
            f"{other[1]}: two tokenizers",
            remedy="take a draft of the target's own family; vLLM from 0.25.0 on can translate (use_heterogeneous_vocab), at a cost",
            row=None,
        )
    elif other is not None:
        yield finding(
            Severity.WARNING,
            "some_tokens_differ",
            "model",
            f"{other[1]}: drafts of those are never accepted, or mean something else",
            remedy="fine where they are special tokens that answers do not hold; look at them",
            row=None,
        )
    if ours is None or theirs is None or ours == theirs:
        return
    padded = other is None and (_same_tokens(pair) or abs(ours - theirs) <= PADDED_SHARE * max(ours, theirs))
    refused = pair.engine == "vllm" or not padded
    yield finding(
        Severity.ERROR if refused else Severity.WARNING,
        "vocabulary_sizes_differ",
        "model",
        f"{sizes}: " + (f"padding, as it seems, {_padding(pair)}" if padded else "two tokenizers"),
        remedy="take a draft with the target's vocabulary size"
        + (", or pad the smaller embedding and output layer to the larger with zeros" if padded else ", one of its own family"),
        row=None,
    )


def _padding(pair: _Pair) -> str:
    return "which vLLM refuses all the same" if pair.engine == "vllm" else "which strict versions refuse all the same"


def _same_tokens(pair: _Pair) -> bool:
    ours, theirs = pair.target.tokens, pair.draft.tokens
    return ours is not None and theirs is not None and (ours.source, ours.sha256) == (theirs.source, theirs.sha256)


def _other_tokens(target: Checkpoint, draft: Checkpoint) -> tuple[float, str] | None:
    """The share of ids that mean different things, and in words; None where none does, or where it cannot be told."""
    ours, theirs = target.tokens, draft.tokens
    if ours is None or theirs is None or ours.source != theirs.source or ours.sha256 == theirs.sha256:
        return None
    if ours.texts is None or theirs.texts is None:
        return 1.0, f"{ours.source} of target and draft differ"
    both = ours.texts.keys() & theirs.texts.keys()
    differ = sorted(each for each in both if ours.texts[each] != theirs.texts[each])
    if not differ:
        return None
    at = differ[0]
    words = f"{len(differ)} of {len(both)} shared token ids mean different things (id {at}: {printable(ours.texts[at])} in the target, "
    return len(differ) / len(both), f"{words}{printable(theirs.texts[at])} in the draft)"


def _own_ends(draft: Checkpoint) -> Iterator[ConfigFinding]:
    """A whole model embeds and predicts by itself."""
    tied = draft.stated("tie_word_embeddings")
    gemma = str(draft.stated("model_type") or "").startswith("gemma")
    lacks = [
        name
        for name, needed in (("embed_tokens.weight", True), ("lm_head.weight", not (gemma if tied is None else tied)))
        if needed and draft.tensors is not None and draft.tensor(name) is None
    ]
    if lacks:
        yield finding(
            Severity.ERROR,
            "missing_tensor",
            lacks[0],
            f"the draft model has no {' and no '.join(lacks)}: it is no whole model, or only part of one",
            remedy="download it again, or write the method of the head that it is",
            row=None,
        )


def _size(target: Checkpoint, draft: Checkpoint) -> Iterator[ConfigFinding]:
    if target.stored_bytes and draft.stored_bytes and draft.stored_bytes >= target.stored_bytes:
        yield finding(
            Severity.WARNING,
            "draft_as_large_as_target",
            "model",
            f"the draft's weights have {draft.stored_bytes / 1e9:.2f} GB and the target's {target.stored_bytes / 1e9:.2f} GB: "
            "no acceptance makes that faster",
            remedy="take a draft of at most a tenth of the target",
            row=None,
        )


def _written(parts: Parts) -> str:
    return ".".join(map(str, parts))
