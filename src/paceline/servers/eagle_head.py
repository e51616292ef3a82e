"""Whether an EAGLE or EAGLE-3 head fits a target: widths, the translation of its vocabulary, the layers it listens to.

    fc.weight  [h, 2·h] of EAGLE: last hidden state and embedding; [h, n·h_target] of EAGLE-3: n hidden states, three as a rule
    d2t        [draft vocabulary] 64 bit offsets: draft token i is the target's token i + d2t[i]
    lm_head    [draft vocabulary, h]; absent where the target's is used, which is of the target's whole vocabulary
    embed      [vocabulary, h]; absent where the target's is used

An auxiliary layer's number k means the residual stream after k decoder layers, 0 the embedding. vLLM reads numbers so; SGLang and
TensorRT-LLM count the layers' outputs from 0, one less. Without any stated, layers 2, L // 2 and L − 3 are taken by all of them.
Source: vLLM 0.32.0 models/llama_eagle3.py:291 and :386, models/interfaces.py:1733; SpecForge configurations @a6b6b02.
"""

from collections.abc import Iterator

from paceline.checkpoint import Checkpoint
from paceline.errors import printable
from paceline.servers.lint import ConfigFinding, Severity
from paceline.servers.lint_tables import finding

__all__ = ["default_auxiliary_layers", "head_findings"]

DEFAULT_COUNT = 3
D2T = "d2t"


def default_auxiliary_layers(layers: int) -> tuple[int, int, int]:
    """The layers that servers listen to where a head states none, as numbers of layers passed."""
    return 2, layers // 2, layers - 3


def head_findings(target: Checkpoint, head: Checkpoint, *, engine: str, fused: int | None) -> tuple[ConfigFinding, ...]:
    """What does not fit; `fused` is the usual number of hidden states of an EAGLE-3 head, None for EAGLE."""
    if fused is None:
        return (*_hidden(target, head), *_shared_ends(target, head))
    return (*_hidden(target, head), *_auxiliary(target, head, engine), *_translation(target, head), *_shared_ends(target, head))


def _hidden(target: Checkpoint, head: Checkpoint) -> Iterator[ConfigFinding]:
    ours, stated, own = target.size("hidden_size"), head.size("target_hidden_size"), head.size("hidden_size")
    known = stated or own
    if ours is not None and known is not None and ours != known:
        name = "hidden_size" if stated is None else "target_hidden_size"
        yield _error(
            "hidden_sizes_differ",
            name,
            f"the head's {name} is {known} and the target's hidden size {ours}: a head for another target",
            "take the head that was trained for this target",
        )


def _auxiliary(target: Checkpoint, head: Checkpoint, engine: str) -> Iterator[ConfigFinding]:
    layers, numbers = target.size("num_hidden_layers"), head.auxiliary_layers
    beyond = [each for each in numbers or () if layers is not None and not 0 <= each <= layers]
    if beyond:
        yield _error(
            "auxiliary_layer_out_of_range",
            "eagle_aux_hidden_state_layer_ids",
            f"the head listens to layer {beyond[0]}, and the target has {layers}",
            "take the head that was trained for this target; number k is the state after k layers",
        )
    shifted = None if layers is None else tuple(each - 1 for each in default_auxiliary_layers(layers))
    if engine == "vllm" and numbers is not None and numbers == shifted:
        right = ", ".join(str(each + 1) for each in numbers)
        yield finding(
            Severity.WARNING,
            "auxiliary_layers_off_by_one",
            "eagle_aux_hidden_state_layer_ids",
            f"layers {', '.join(map(str, numbers))} are the usual ones counted from 0, as SGLang and SpecForge write them; "
            "vLLM takes number k as the state after k layers and would listen one layer too early",
            remedy=f"if the head was trained on the usual layers, write {right} in its config.json, and compare acceptance with both",
            row=None,
        )
    yield from _width(target, head, count=DEFAULT_COUNT if numbers is None else len(numbers))


def _width(target: Checkpoint, head: Checkpoint, *, count: int) -> Iterator[ConfigFinding]:
    fused, ours = head.tensor("fc.weight"), target.size("hidden_size")
    if fused is not None and ours is not None and (len(fused.shape) != 2 or fused.shape[1] != count * ours):
        yield _error(
            "fused_width",
            "fc.weight",
            f"fc.weight is {printable(list(fused.shape))}, where {count} hidden states of the target are {count * ours} wide",
            "take the head that was trained for this target, with the auxiliary layers it was trained on in its config.json",
        )


def _translation(target: Checkpoint, head: Checkpoint) -> Iterator[ConfigFinding]:
    """Whether drafted tokens become the target's."""
    ours, theirs, table, output = target.vocabulary, head.draft_vocabulary, head.target_ids, head.tensor("lm_head.weight")
    if ours is None or theirs is None or head.tensors is None:
        return
    if output is not None and output.shape[:1] != (theirs,):
        yield _error(
            "output_layer_rows",
            "draft_vocab_size",
            f"draft_vocab_size is {theirs} and lm_head.weight is {printable(list(output.shape))}",
            "write the output layer's rows as draft_vocab_size",
        )
    if table is None:
        unread = head.tensor(D2T) is not None
        if theirs != ours:
            yield _error(
                "d2t_unreadable" if unread else "missing_d2t",
                D2T,
                f"the head drafts from {theirs} tokens of the target's {ours} and "
                + ("its d2t is no list of 32 or 64 bit integers" if unread else "has no d2t")
                + ": it loads, every draft means another token, and next to none is accepted",
                "export d2t with the head: 64 bit offsets, one per draft token (target id − draft id)",
            )
        return
    if table.entries != theirs:
        yield _error(
            "d2t_length",
            D2T,
            f"d2t has {table.entries} entries for {theirs} draft tokens",
            "export the d2t that belongs to this head's output layer",
        )
    yield from _ids(head, ours)


def _ids(head: Checkpoint, vocabulary: int) -> Iterator[ConfigFinding]:
    table = head.target_ids
    assert table is not None
    if table.lowest < 0 or table.highest >= vocabulary:
        absolute = table.highest < vocabulary + table.entries and table.lowest >= 0
        yield _error(
            "d2t_range",
            D2T,
            f"i + d2t[i] runs from {table.lowest} to {table.highest}, outside the target's {vocabulary} tokens"
            + ("; the table seems to hold ids, not offsets" if absolute else ""),
            "store offsets: target id − draft id",
        )
    elif table.distinct < table.entries:
        yield _warning(
            "d2t_repeats",
            D2T,
            f"{table.entries - table.distinct} of {table.entries} draft tokens lead to a target token that another one leads to",
            "export d2t again; an offset that was never set is 0",
        )
    elif table.unmoved and table.entries < vocabulary:
        yield _warning(
            "d2t_unmoved",
            D2T,
            f"every offset is 0: the head drafts the target's first {table.entries} tokens only, which is right only if it was trained so",
            "export d2t again; a table that was never filled looks like this, and next to nothing is accepted",
        )


def _shared_ends(target: Checkpoint, head: Checkpoint) -> Iterator[ConfigFinding]:
    """What the head takes from the target has to be of its own size."""
    if head.tensors is None:
        return
    ours, own = target.size("hidden_size"), head.size("hidden_size")
    narrower = ours is not None and own is not None and ours != own and head.size("target_hidden_size") == ours
    if head.tensor("embed_tokens.weight") is None and narrower:
        yield _error(
            "missing_embedding",
            "embed_tokens.weight",
            f"the head has no embedding of its own, and the target's is {ours} wide, not {own}",
            "export the head with its embedding",
        )
    stated = head.size("draft_vocab_size")
    if head.tensor("lm_head.weight") is None and None not in (stated, target.vocabulary) and stated != target.vocabulary:
        yield _error(
            "missing_output_layer",
            "lm_head.weight",
            f"the head has no output layer for its {stated} draft tokens; the target's has {target.vocabulary}",
            "export the head with lm_head.weight",
        )


def _error(code: str, field: str, message: str, remedy: str) -> ConfigFinding:
    return finding(Severity.ERROR, code, field, message, remedy=remedy, row=None)


def _warning(code: str, field: str, message: str, remedy: str) -> ConfigFinding:
    return finding(Severity.WARNING, code, field, message, remedy=remedy, row=None)
