"""How many tokens a vLLM server is told to draft: K, the table by batch size, n-gram windows, invented acceptance, and the token budget.

K is `num_speculative_tokens`.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from paceline.data.tables import table
from paceline.errors import printable
from paceline.servers.lint import ConfigFinding, Severity
from paceline.servers.lint_tables import finding
from paceline.servers.vllm.config import batch_size_table_cautions
from paceline.servers.vllm.lint_case import Case, Drafting
from paceline.servers.vllm.lint_method import CHECKPOINT_METHODS, predicted_layers
from paceline.servers.vllm.versions import Version, holds, max_draft_tokens, parse_version

__all__ = ["length_findings"]

DRAFT_TOKENS = "num_speculative_tokens"
SCHEDULE = "num_speculative_tokens_per_batch_size"
NEED_MODEL = ("draft_model", "eagle", "eagle3", "medusa", "mlp_speculator", "dflash", "custom_class")
NGRAM = ("ngram", "ngram_gpu")
DEFAULT_DEPTH = 24
FEWEST_SEQUENCES = 256  # the smallest default of --max-num-seqs; 1,024 on GPUs with 70 GB and more
FLY_LEAST = 2


def length_findings(case: Case, drafting: Drafting) -> Iterator[ConfigFinding]:
    """What is wrong with the lengths."""
    yield from _missing(case, drafting)
    yield from _window(drafting)
    yield from _schedule(drafting)
    yield from _invented(case.version, drafting)
    if drafting.draft_tokens is not None:
        yield from _long(case.version, drafting, drafting.draft_tokens)
        yield from _budget(case, drafting, drafting.draft_tokens)


def _missing(case: Case, drafting: Drafting) -> Iterator[ConfigFinding]:
    """No K, or a K and nothing to draft with."""
    model = "model" in drafting.keys.named and drafting.model != ""
    if DRAFT_TOKENS in drafting.keys.named:
        if not model and drafting.method in (CHECKPOINT_METHODS if drafting.model == "" else NEED_MODEL):
            yield _error(
                "missing_model", "model", f"method {drafting.method} needs a model to draft with", "write the draft's name or folder"
            )
        return
    proposed = _proposed(drafting, case.version)
    if drafting.method == "suffix":
        depth = drafting.keys.values.get("suffix_decoding_max_tree_depth", DEFAULT_DEPTH)
        message = f"K is the depth of the tree, {depth}"
        yield finding(Severity.INFO, "default_draft_tokens", DRAFT_TOKENS, message, remedy="write it out", row=None)
    elif drafting.method == "dspark":
        message = f"K is the width of the draft's block{f', {proposed}' if proposed else ''}"
        yield finding(Severity.INFO, "default_draft_tokens", DRAFT_TOKENS, message, remedy="write it out", row=None)
    else:
        # an MTP checkpoint states a number too, and is refused before it is looked at (0.32.0, run)
        remedy = f'write "{DRAFT_TOKENS}": {proposed or 3}' + (", which this checkpoint proposes" if proposed else ", or what was measured")
        yield _error("missing_draft_tokens", DRAFT_TOKENS, "K is missing: the server refuses to start", remedy)


def _proposed(drafting: Drafting, version: Version) -> int | None:
    """The K that the draft's checkpoint states: what it was trained for, its layers that predict, or the width of its block."""
    draft = drafting.draft
    if draft is None:
        return None
    proposals = draft.config.get("speculators_config")
    methods = proposals.get("proposal_methods") if isinstance(proposals, dict) else None
    first = methods[0] if isinstance(methods, list) and methods and isinstance(methods[0], dict) else {}
    tokens = first.get("speculative_tokens")
    if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens > 0:
        return tokens
    return predicted_layers(draft, version) or draft.size("block_size", "dspark_block_size")


def _window(drafting: Drafting) -> Iterator[ConfigFinding]:
    if drafting.method not in NGRAM:
        return
    values, named = drafting.keys.values, drafting.keys.named
    if drafting.model is not None and drafting.model not in ("ngram", "[ngram]", "ngram_gpu"):
        message = f"method {drafting.method} looks tokens up and does nothing with model {printable(drafting.model)}"
        yield finding(
            Severity.WARNING,
            "ignored_key",
            "model",
            message,
            remedy="leave it out, or write the method that the model drafts with",
            row=None,
        )
    shortest, longest = values.get("prompt_lookup_min"), values.get("prompt_lookup_max")
    if shortest is not None and longest is not None and shortest > longest:
        message = f"n-grams from {shortest} to {longest} tokens are none: the server refuses to start"
        yield _error("ngram_window", "prompt_lookup_min", message, "write prompt_lookup_min at most prompt_lookup_max")
    if not named & {"prompt_lookup_min", "prompt_lookup_max"}:
        message = "n-grams of exactly 5 tokens are looked up where nothing is said, so short repetitions are missed"
        remedy = "try lengths on your own traffic with `paceline replay`"
        yield finding(Severity.INFO, "default_ngram_window", "prompt_lookup_max", message, remedy=remedy, row={"since": "0.8.2"})


def _schedule(drafting: Drafting) -> Iterator[ConfigFinding]:
    """The table by batch size: the server looks at it when its scheduler is built, after everything else."""
    rows: Sequence[tuple[int, int, int]] | None = drafting.keys.values.get(SCHEDULE)
    if rows is None:
        return
    if drafting.method == "suffix":
        yield finding(
            Severity.WARNING,
            "ignored_key",
            SCHEDULE,
            "suffix decoding was not tried with a table by batch size",
            remedy="leave it out",
            row=None,
        )
    wrong = _wrong_schedule(sorted(rows))
    if wrong is not None:
        yield _error(
            "schedule",
            SCHEDULE,
            f"{wrong}: the server does not start",
            "write [first, last, K] from batch size 1 on, without overlaps",
            "0.24.0",
        )
        return
    ordered = sorted(rows)
    gaps = [(before[1] + 1, after[0] - 1, before[2]) for before, after in pairwise(ordered) if after[0] > before[1] + 1]
    if gaps:
        shown = ", ".join(f"{first} to {last} draft {length}" for first, last, length in gaps)
        yield finding(
            Severity.INFO,
            "schedule_gap",
            SCHEDULE,
            f"the table leaves gaps, and each goes on with the K before it: {shown}",
            remedy="write it out",
            row={"since": "0.24.0"},
        )
    most = drafting.draft_tokens
    above = [length for _, _, length in ordered if most is not None and length > most]
    if above:
        message = f"K = {max(above)} in the table is cut to {DRAFT_TOKENS} = {most}"
        yield finding(
            Severity.WARNING,
            "schedule_cut",
            SCHEDULE,
            message,
            remedy=f'write "{DRAFT_TOKENS}": {max(above)}, or less in the table',
            row={"since": "0.24.0"},
        )
    for caution in batch_size_table_cautions(ordered):
        yield finding(
            Severity.WARNING, caution.code, SCHEDULE, caution.message, remedy="measure before it is rolled out", row={"since": "0.24.0"}
        )


def _wrong_schedule(rows: Sequence[tuple[int, int, int]]) -> str | None:
    if not rows:
        return "the table is empty"
    for first, last, length in rows:
        if not 1 <= first <= last or length < 0:
            return f"[{first}, {last}, {length}] is no range of batch sizes from 1 on with a K from 0 on"
    if rows[0][0] != 1:
        return f"the table begins at batch size {rows[0][0]}, so smaller ones have no K"
    overlap = next((after for before, after in pairwise(rows) if after[0] <= before[1]), None)
    return None if overlap is None else f"[{overlap[0]}, {overlap[1]}, {overlap[2]}] overlaps the range before it"


def _invented(version: Version, drafting: Drafting) -> Iterator[ConfigFinding]:
    """Acceptance that is made up (synthetic), and the window of fly."""
    values = drafting.keys.values
    method, k = values.get("rejection_sample_method"), drafting.draft_tokens
    rates, length = values.get("synthetic_acceptance_rates"), values.get("synthetic_acceptance_length")
    field = "rejection_sample_method"
    if method != "synthetic" and (rates is not None or length is not None):
        message = "an acceptance is stated and rejection_sample_method is not synthetic: the server refuses"
        yield _error(
            "acceptance_without_synthetic",
            field,
            message,
            'write "rejection_sample_method": "synthetic" for a load-test, or leave it out',
            "0.20.0",
        )
    if method == "synthetic" and version.answers >= (0, 20, 0):
        if (rates is None) == (length is None):
            message = "synthetic needs either synthetic_acceptance_rates or synthetic_acceptance_length: the server refuses"
            yield _error("synthetic_acceptance", field, message, "write one of them", "0.20.0")
        elif k is not None:
            yield from _rates(rates, k) if rates is not None else _length(length, k)
    window = values.get("fly_window_size")
    if method == "fly" and k is not None and (k < FLY_LEAST or window is None or window >= k):
        message = f"fly needs K of {FLY_LEAST} or more and a fly_window_size below it, not {k} and {window}: the server refuses"
        yield _error("fly_window", "fly_window_size", message, "write a window from 1 to K - 1", "0.33.0")


def _rates(rates: Sequence[float], k: int) -> Iterator[ConfigFinding]:
    falls = all(after <= before for before, after in pairwise(rates))
    if len(rates) != k or not falls or not all(0 <= each <= 1 for each in rates):
        message = f"synthetic_acceptance_rates {printable(rates)} is not {k} numbers from 1 down to 0 that never rise: the server refuses"
        remedy = "write for each position the share of drafts accepted up to there"
        yield _error("synthetic_acceptance", "synthetic_acceptance_rates", message, remedy, "0.20.0")


def _length(length: Any, k: int) -> Iterator[ConfigFinding]:
    if not 1 <= length <= k + 1:
        message = f"synthetic_acceptance_length {length:g} is not between 1 and {k + 1}: the server refuses"
        yield _error(
            "synthetic_acceptance", "synthetic_acceptance_length", message, "write tokens per step, the target's own one included", "0.20.0"
        )


def _long(version: Version, drafting: Drafting, k: int) -> Iterator[ConfigFinding]:
    most = max_draft_tokens(version)
    if k > most:
        message = f"K = {k} is above {most}, the longest that the rejection sampler takes: an assertion fails while serving"
        yield _error("draft_too_long", DRAFT_TOKENS, message, f"write at most {most}; what pays is rarely above 10")
    layers = None if drafting.draft is None or drafting.method not in ("mtp", "deepseek_mtp") else predicted_layers(drafting.draft, version)
    if layers and k > layers and k % layers:
        message = f"K = {k} is no multiple of the {layers} layers that predict: the server refuses to start"
        yield _error("not_a_multiple", DRAFT_TOKENS, message, f"write {k // layers * layers} or {(k // layers + 1) * layers}")
    block = None if drafting.draft is None or drafting.method != "dspark" else drafting.draft.size("block_size", "dspark_block_size")
    if block is not None and k < block and parse_version("0.26.0") <= version.answers <= parse_version("0.27.0"):
        message = f"K = {k} is below the block of {block} that this draft was trained with: the server refuses"
        yield _error("below_the_block", DRAFT_TOKENS, message, f"write {block} or more", "0.26.0")


def _slots(drafting: Drafting, k: int) -> int:
    """Places in a step that drafting takes for each sequence, beside the one that it decodes."""
    parallel = drafting.method == "dspark" or drafting.keys.values.get("parallel_drafting") is True
    if drafting.method == "dflash":
        return k
    if drafting.method == "draft_model":
        return k if parallel else 1
    return k - 1 if parallel else 0


def _budget(case: Case, drafting: Drafting, k: int) -> Iterator[ConfigFinding]:
    """Tokens of a step that are left to schedule."""
    row = next((each for each in table("servers/vllm_lint")["budget"] if holds(each, case.version)), None)
    slots = _slots(drafting, k)
    if row is None or slots == 0:
        return
    tokens, sequences = case.number("--max-num-batched-tokens"), case.number("--max-num-seqs")
    taken = slots * (sequences or FEWEST_SEQUENCES) if row["per_sequence"] else slots
    each = f"for each of {sequences or FEWEST_SEQUENCES} sequences"
    default = "" if sequences else " (a default; 1,024 on large GPUs)"
    whole = f"drafting takes {slots} slots " + (f"{each}{default} " if row["per_sequence"] else "") + "out of --max-num-batched-tokens"
    refuses = case.version.answers >= parse_version(row["refuses_since"])
    ending = "the server refuses to start" if refuses else "nothing is ever scheduled"
    since, until = row["since"], row.get("until")
    if tokens is not None and tokens <= taken:
        # without --max-num-seqs the server lowers its own default to the budget
        severity = Severity.ERROR if sequences or not row["per_sequence"] else Severity.WARNING
        yield finding(
            severity,
            "token_budget",
            "--max-num-batched-tokens",
            f"{whole} of {tokens}, and {ending}",
            remedy=f"raise it well above {taken}, or lower --max-num-seqs",
            row={"since": since, "until": until},
        )
    elif tokens is None and row["per_sequence"]:
        severity = Severity.WARNING if slots > 1 else Severity.INFO
        message = f"{whole}: {taken} tokens, and {ending} where nothing is left"
        yield finding(
            severity,
            "token_budget",
            "--max-num-batched-tokens",
            message,
            remedy=f"raise it well above {taken}, or lower --max-num-seqs",
            row={"since": since, "until": until},
        )


def _error(code: str, field: str, message: str, remedy: str, since: str | None = None) -> ConfigFinding:
    return finding(Severity.ERROR, code, field, message, remedy=remedy, row={"since": since})
