"""What kind of draft a folder holds, told by its class, its format and its tensors.

    EAGLE     fc.weight [h, 2·h] and decoder layers, of which the first has no input norm; no final norm
    EAGLE-3   a decoder layer with `hidden_norm`, d2t where its vocabulary is smaller, fc.weight [h, n·h_target]
    MEDUSA    blocks of residual layers: `0.0.linear.weight` as its authors write them, `blocks.0.layers.0.weight` for vLLM
    a model   embeddings and a final norm, and nothing of the above

Source: vLLM 0.32.0 models/llama_eagle.py, llama_eagle3.py and medusa.py; the MEDUSA repository's medusa_model_legacy.py.
"""

from paceline.checkpoint import Checkpoint

__all__ = ["CALLED", "DRAFT_MODEL", "EAGLE", "EAGLE3", "MEDUSA", "draft_kind"]

DRAFT_MODEL, EAGLE, EAGLE3, MEDUSA = "draft_model", "eagle", "eagle3", "medusa"
CALLED = {DRAFT_MODEL: "a whole model", EAGLE: "an EAGLE head", EAGLE3: "an EAGLE-3 head", MEDUSA: "a MEDUSA head"}
UNRULED = ("dflash", "dspark", "mlpspeculator", "mtp", "peagle")
MEDUSA_BEGINS = ("0.0.", "blocks.0.layers.", "medusa_head.")


def draft_kind(draft: Checkpoint) -> str | None:
    """One of the kinds that have a name here; None for what we have no rule for, and where it cannot be told."""
    stated = " ".join((*draft.architectures, draft.speculators_type or "", str(draft.config.get("model_type") or ""))).casefold()
    if "eagle3" in stated:
        return EAGLE3
    if any(each in stated for each in UNRULED):
        return None
    names = tuple(draft.tensors or ())
    if "medusa" in stated or "medusa_num_heads" in draft.config or any(each.startswith(MEDUSA_BEGINS) for each in names):
        return MEDUSA
    if draft.tensor("hidden_norm.weight") is not None or draft.tensor("d2t") is not None:
        return EAGLE3
    fused, hidden = draft.tensor("fc.weight") or draft.tensor("fusion_fc.weight"), draft.size("hidden_size")
    if fused is not None and len(fused.shape) == 2 and hidden is not None and draft.size("target_hidden_size") in (None, hidden):
        return EAGLE if fused.shape[1] == 2 * hidden else EAGLE3
    if "eagle" in stated:
        return EAGLE
    ends = draft.tensor("embed_tokens.weight") is not None and any("norm" in each and "layers." not in each for each in names)
    return DRAFT_MODEL if ends and fused is None else None
