"""How speculation is switched on in llama.cpp's llama-server: its --spec-* options and both arms' commands.

The type is always given: with a draft and no --spec-type the server loads the draft and never uses it (llama.cpp#25345). --metrics exports
the counters, --slots says whether a slot speculates. Slots share one KV cache (--kv-unified), or each would get its share of the context.
"""

from collections.abc import Mapping

from paceline.errors import BadInputError
from paceline.servers.server_start import Drafting, ServerStart, need_draft, need_name
from paceline.speculation.method import Method

__all__ = ["server_start", "speculative_notes", "speculative_options"]

TYPES = {
    Method.DRAFT_MODEL: "draft-simple",
    Method.EAGLE3: "draft-eagle3",
    Method.MTP: "draft-mtp",
    Method.NGRAM: "ngram-simple",
}
LIMITS = {"--max-num-seqs": "--parallel", "--max-num-batched-tokens": "--batch-size"}


def speculative_options(drafting: Drafting) -> dict[str, str]:
    """The options of the speculative arm.

    Raises:
        BadInputError: a method llama.cpp lacks, a tree, a table by batch size, or a draft missing or out of place.

    """
    if drafting.method not in TYPES:
        raise BadInputError(f"llama.cpp has no {drafting.method.value}; it drafts by {', '.join(each.value for each in TYPES)}")
    if drafting.tree is not None or drafting.by_batch is not None:
        raise BadInputError("llama-server drafts chains of one length; leave out the tree and the table by batch size")
    need_draft(drafting)
    options = {"--spec-type": TYPES[drafting.method]}
    if drafting.ngram is not None:
        return options | {
            "--spec-ngram-simple-size-n": str(drafting.ngram.shortest),
            "--spec-ngram-simple-size-m": str(drafting.draft_tokens),
            "--spec-ngram-simple-min-hits": "1",
        }
    if drafting.draft is not None:
        options |= {"--spec-draft-model": drafting.draft, "--spec-draft-ngl": "all"}
    return options | {"--spec-draft-n-max": str(drafting.draft_tokens), "--spec-draft-n-min": "0", "--spec-draft-p-min": "0"}


def server_start(target: str, *, speculation: Mapping[str, str] | None, limits: Mapping[str, int]) -> ServerStart:
    """One arm: the speculative one with `speculative_options`, the baseline with None. `target` is a GGUF file.

    `limits` are requests and tokens by vLLM's option.

    Raises:
        BadInputError: the target is no name.

    """
    need_name("target", target)
    options = {"--model": target, "--gpu-layers": "all", **{LIMITS[name]: str(value) for name, value in limits.items()}}
    plain, drafting = ([word for pair in each.items() for word in pair] for each in (options, speculation or {}))
    return ServerStart(engine="llamacpp", command=("llama-server", *plain, "--kv-unified", "--metrics", "--slots", *drafting), files={})


def speculative_notes(drafting: Drafting) -> tuple[str, ...]:
    """What to know before both arms are run."""
    notes = ["look at /slots after the start: a draft with another vocabulary is dropped with a line in the log, and health stays ok"]
    if drafting.ngram is not None:
        notes.append(
            f"ngram-simple looks up one length, here the shortest ({drafting.ngram.shortest}); "
            f"the longest ({drafting.ngram.longest}) is not an option"
        )
    if drafting.method is Method.MTP and drafting.draft is None:
        notes.append("draft-mtp needs an MTP draft that was converted with --target-model-dir, unless the target's GGUF holds it")
    return tuple(notes)
