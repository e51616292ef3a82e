"""Reads published measurements of speculative decoding and prices each row, or says why it cannot.

A row is used where its method drafts a chain and it states hardware by type, a target whose shape is known or follows from its size,
acceptance, a whole draft length, and a batch. What a row leaves open and how that is read:

    context      the column; else prompt + half the output where the dataset names both ("8K/1K", "ISL2k/OSL64"); else 700, and the range
                 is stretched over 200 to 2000
    GPUs         the tp column, else the count before the GPU's name, else the fewest that hold the target
    dtype        the widest that fits, where none is stated
    shape        data/models.toml; else the nearest known model with layers scaled to the billions in the name, and the range is widened
    prefill      where the dataset names prompt and output, the speed-up is that of whole requests, unless only TPOT was measured
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import log

from paceline.errors import BadInputError, UnknownNameError
from paceline.forecast.calibrate import Setting, Terms, priced
from paceline.forecast.draft_memory import block_drafter, draft_model, draft_shape
from paceline.forecast.kernels import MOST_GPUS
from paceline.forecast.roofline import Placement, placed
from paceline.forecast.shapes import gpu, known_gpus, known_models, model
from paceline.hardware import DraftShape, Dtype, Gpu, ModelShape
from paceline.speculation.acceptance import tokens_from_conditional
from paceline.speculation.method import Method, Speculation, Tree

__all__ = ["TREES", "UNSTATED", "ExcludedError", "Row", "price_row"]

UNSTATED = "unstated"
TREES = {"dyn tree 60 tok depth~8": Tree(depth=8, topk=10, nodes=60), "steps 8 topk 8 64 tok": Tree(depth=8, topk=8, nodes=64)}
ASSUMED_CONTEXT, CONTEXTS = 700, (200, 2000)
HEADS = {
    **dict.fromkeys(("eagle", "eagle1", "eagle1+", "hass", "eagle2"), Method.EAGLE),
    **dict.fromkeys(("eagle3", "eagle3.1"), Method.EAGLE3),
    "mtp": Method.MTP,
    "draft_model": Method.DRAFT_MODEL,
    **dict.fromkeys(("ngram", "pld"), Method.NGRAM),
    "suffix": Method.SUFFIX,
}
BLOCK_DRAFTERS = ("dflash", "dflash2", "dspark", "dfly", "domino", "p-eagle")
DTYPES = (
    (r"nvfp4|mxfp4|fp4", Dtype.FP4),
    (r"fp8|int8|q8|w8", Dtype.FP8),
    (r"int4|q4|q5|awq|gptq|w4", Dtype.INT4),
    (r"bf16|fp16|f16|bfloat16", Dtype.BF16),
)
HEADROOM = 0.9


class ExcludedError(Exception):
    """Why a row cannot be scored."""


@dataclass(frozen=True, slots=True)
class Row:
    """One published measurement, priced.

    Attributes:
        source: who published it.
        engine: family, UNSTATED where the row names none.
        label: for people.
        ratio: E / S.
        tokens_per_step: E.
        speedup: S.
        terms: priced at the row's context.
        elsewhere: priced at shorter and longer contexts, where the row states none.
        gpus: that the target is split over.
        guessed: what about the row was not stated; each widens the range.

    """

    source: str
    engine: str
    label: str
    ratio: float
    tokens_per_step: float
    speedup: float
    terms: Terms
    elsewhere: tuple[Terms, ...]
    gpus: int
    guessed: tuple[str, ...]


def price_row(row: Mapping[str, str], *, trees: bool) -> Row:
    """The row, priced; with `trees` a row that drafts a tree of known shape instead of one that drafts a chain.

    Raises:
        ExcludedError: it lacks something, or it is not priced.

    """
    speedup = _number(row, "speedup", "no speed-up")
    method = row["method"].strip().casefold()
    block = method in BLOCK_DRAFTERS
    if not block and method not in HEADS:
        raise ExcludedError(f"method not priced as a chain: {method}")
    tree = TREES.get(row["K_or_tree"].strip()) if trees else None
    if trees and tree is None:
        raise ExcludedError("no tree of known shape")
    draft_tokens = _draft_tokens(row["K_or_tree"]) if tree is None else tree.depth
    tokens = _tokens_per_step(row, draft_tokens)
    if speedup > tokens:
        raise ExcludedError("speed-up above tokens per step: the two arms are not comparable")
    requests = _whole(row["batch_or_concurrency"], "batch not stated as a number")
    chip, counted = _hardware(row)
    guessed: list[str] = []
    target = _target(row["target"], guessed)
    where = _placement(row, target, chip, counted, guessed)
    draft = block_drafter(target) if block else _draft(row, HEADS[method], target, guessed)
    prompt, output = _lengths(row)
    context = _context(row, prompt, output)
    if context is None:
        guessed.append("context")
    decode_only = "tpot" in row["baseline_metric"].casefold() and "tok/s" not in row["baseline_metric"].casefold()
    setting = Setting(
        target=target,
        where=where,
        speculation=Speculation(Method.MTP if block else HEADS[method], draft_tokens, tree),
        draft=draft,
        requests=requests,
        context_tokens=context or ASSUMED_CONTEXT,
        prompt_tokens=None if decode_only else prompt,
        output_tokens=None if decode_only else output,
    )
    try:
        terms = priced(setting)
        elsewhere = () if context else tuple(priced(replace(setting, context_tokens=each)) for each in CONTEXTS)
    except BadInputError as fault:
        raise ExcludedError(f"not priced: {fault}") from None
    return Row(
        source=row["source"],
        engine=row["engine"].strip().casefold() or UNSTATED,
        label=f"{row['target']} on {row['hardware']}, {method} K {draft_tokens}, batch {requests}",
        ratio=tokens / speedup,
        tokens_per_step=tokens,
        speedup=speedup,
        terms=terms,
        elsewhere=elsewhere,
        gpus=where.gpus,
        guessed=tuple(guessed),
    )


def _number(row: Mapping[str, str], column: str, missing: str) -> float:
    try:
        value = float(row[column])
    except ValueError:
        raise ExcludedError(missing) from None
    if not 0 < value < 1e4:
        raise ExcludedError(missing)
    return value


def _whole(text: str, missing: str) -> int:
    if not re.fullmatch(r"\d{1,4}", text.strip()) or int(text) < 1:
        raise ExcludedError(missing)
    return int(text)


def _draft_tokens(text: str) -> int:
    """K of "3", "chain 3", "chain 3 (no tree)", "steps 5 topk 1"; a block of n holds n − 1 drafts."""
    said = text.strip().casefold()
    if found := re.fullmatch(r"block ?(\d{1,2})", said):
        return max(1, int(found[1]) - 1)
    found = re.fullmatch(r"(?:chain |k ?= ?|steps )?([1-9]\d?)(?: topk 1)?(?: \(no tree\))?", said)
    if found:
        return int(found[1])
    raise ExcludedError("draft tree" if "tree" in said or "topk" in said else "draft length not stated as one whole number")


def _tokens_per_step(row: Mapping[str, str], draft_tokens: int) -> float:
    value = _number(row, "alpha_or_tau", "no acceptance")
    kind = row["alpha_def"].casefold()
    if kind.startswith("tau"):
        tokens = value + 1 if "excl" in kind else value
    elif kind.startswith("accepted") and value <= 1:
        tokens = 1 + draft_tokens * value
    elif kind.startswith("beta") and value <= 1:
        tokens = tokens_from_conditional(value, draft_tokens=draft_tokens)
    else:
        raise ExcludedError("no acceptance")
    if not 1 <= tokens <= draft_tokens + 1:
        raise ExcludedError("acceptance outside 1 to K + 1 tokens per step")
    return tokens


def _hardware(row: Mapping[str, str]) -> tuple[Gpu, int | None]:
    said = row["hardware"].casefold().replace("geforce", "")
    if not said.strip() or "not stated" in said.split("(")[0] or "not recorded" in said or "type not stated" in said:
        raise ExcludedError("hardware not stated")
    folded = re.sub(r"[\s_-]", "", said)
    names = sorted(known_gpus(), key=len, reverse=True)
    chip = next((name for name in names if re.sub(r"[\s_-]", "", name) in folded), None)
    if chip is None:
        raise ExcludedError("hardware not in the GPU table")
    count = row["tp"].strip()
    if not count:
        beside = folded.replace(re.sub(r"[\s_-]", "", chip), " ", 1)  # or the x of "rtx3090" would count 3090 of them
        found = re.search(r"(\d+)x ", beside) or re.search(r" x(\d+)", beside)
        parallel = [int(each) for each in re.findall(r"tp\s*(\d+)", said)]
        count = found[1] if found else str(min(parallel)) if parallel else ""
    if not count:
        return gpu(chip), None
    gpus = _whole(count, "number of GPUs not stated as a number")
    if gpus > MOST_GPUS:
        raise ExcludedError(f"more than {MOST_GPUS} GPUs of one node are not priced")
    return gpu(chip), gpus


def _target(name: str, guessed: list[str]) -> ModelShape:
    try:
        return model(name)
    except UnknownNameError:
        guessed.append("shape")
        return _by_size(name)


def _by_size(name: str) -> ModelShape:
    """The nearest known model, layers scaled to the size in the name ("2.4T-A95B", "31B", "68M")."""
    found = re.search(r"(?<![a-z\d.])(\d+(?:\.\d+)?)\s?([tbm])(?![a-z])", name.casefold())
    if not found:
        raise ExcludedError("shape of the target not known")
    total = float(found[1]) * {"t": 1e12, "b": 1e9, "m": 1e6}[found[2]]
    active = re.search(r"a(\d+(?:\.\d+)?)b", name.casefold())
    mixture = active is not None or total > 450e9  # nobody serves a dense decoder of that size
    known = [each for each in map(model, known_models()) if (each.experts is not None) == mixture and each.kv_layers is None]

    def distance(each: ModelShape) -> float:
        apart = abs(log(each.parameters / total))
        return apart if active is None else apart + abs(log(each.active_parameters / (float(active[1]) * 1e9)))

    near = min(known, key=distance)
    layers = max(1 + (0 if near.experts is None else near.experts.dense_layers), round(near.layers * total / near.parameters))
    return replace(near, name=name, layers=layers, source=f"{near.name}, layers scaled to the size in the name")


def _placement(row: Mapping[str, str], target: ModelShape, chip: Gpu, gpus: int | None, guessed: list[str]) -> Placement:
    said = row["dtype"].casefold()
    stated = next((dtype for pattern, dtype in DTYPES if re.search(pattern, said)), None)
    if stated in (Dtype.FP8, Dtype.FP4) and Dtype.FP8 not in chip.flops_per_s:
        stated = Dtype.INT4 if stated is Dtype.FP4 else Dtype.BF16
    if stated is None or gpus is None:
        guessed.append("placement")
    dtypes = (Dtype.BF16, Dtype.FP8, Dtype.FP4) if stated is None else (stated,)
    for dtype in dtypes:
        for count in (1, 2, 4, 8) if gpus is None else (gpus,):
            if target.parameters * dtype.weight_bytes <= HEADROOM * count * chip.memory_bytes:
                return _placed(target, chip, count, dtype)
    return _placed(target, chip, gpus or MOST_GPUS, dtypes[-1])


def _placed(target: ModelShape, chip: Gpu, gpus: int, dtype: Dtype) -> Placement:
    try:
        return placed(target, gpu=chip, gpus=gpus, dtype=dtype)
    except BadInputError as fault:
        raise ExcludedError(f"not priced: {fault}") from None


def _draft(row: Mapping[str, str], method: Method, target: ModelShape, guessed: list[str]) -> DraftShape | None:
    if method is not Method.DRAFT_MODEL:
        return draft_shape(method, target=target, draft=None, draft_vocab=min(32_000, target.vocab))
    if not row["draft"].strip():
        raise ExcludedError("draft model not stated")
    return draft_model(_target(row["draft"], guessed))


def _lengths(row: Mapping[str, str]) -> tuple[int | None, int | None]:
    found = re.search(r"(?:isl)?(\d+)(k?)\s*/\s*(?:osl)?(\d+)(k?)(?![a-z\d])", row["dataset"].casefold())
    if not found:
        return None, None
    prompt, output = int(found[1]) * (1024 if found[2] else 1), int(found[3]) * (1024 if found[4] else 1)
    return (prompt, output) if prompt and output else (None, None)


def _context(row: Mapping[str, str], prompt: int | None, output: int | None) -> int | None:
    if re.fullmatch(r"\d{1,6}", row["context_tokens"].strip()) and int(row["context_tokens"]) > 0:
        return int(row["context_tokens"])
    if prompt is not None and output is not None:
        return prompt + output // 2
    found = re.search(r"(?:ctx|prompt) (\d+)(k?)", row["dataset"].casefold())
    return int(found[1]) * (1024 if found[2] else 1) or None if found else None
