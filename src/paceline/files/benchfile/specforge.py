"""SpecForge's table of SGLang benchmarks: by model and data set, drafting sizes with the throughput and acceptance length of both arms.

steps, topk, num_draft_tokens   depth K, children per level, and nodes verified with the root: drafts are num_draft_tokens − 1
"""

from collections.abc import Iterator
from pathlib import Path

from paceline.errors import BadInputError
from paceline.files.benchfile.acceptance import LENGTH_IS_CONDITIONAL
from paceline.files.benchfile.assemble import Told, found_of, parsed_runs, stated_load, summary
from paceline.files.benchfile.documents import whole_document
from paceline.files.benchfile.fields import Fields, as_list, as_object
from paceline.files.found import Found, sha256_of
from paceline.run import Arm
from paceline.speculation.method import Method, Speculation, Tree

__all__ = ["is_specforge", "read_specforge"]

MADE_BY = "SpecForge benchmark table (sglang)"


def is_specforge(head: str) -> bool:
    """Whether the file begins as one."""
    return all(f'"{key}":' in head for key in ("benchmark_name", "batch_size", "num_draft_tokens", "metrics"))


def read_specforge(path: Path) -> tuple[Found, ...]:
    """Both arms of every row, labelled model/data set/batch/steps,topk,nodes/arm.

    Raises:
        BadInputError: no whole JSON, or figures that are none.

    """
    inputs = {path.name: sha256_of(path)}
    rows = list(_rows(as_object(whole_document(path), "document")))
    return parsed_runs(rows, lambda each: found_of(_run(each), made_by=MADE_BY, inputs=inputs), name=path.name)


def _rows(document: dict[str, object]) -> Iterator[Fields]:
    tables = [(model, name, told) for model, sets in document.items() for name, told in as_object(sets, model).items()]
    for model, name, told in tables:
        for i, row in enumerate(as_list(as_object(told, name).get("results"), f"{name}.results")):
            where = f"{model}.{name}.results[{i}]."
            fields = as_object(row, where)
            for metrics in as_list(fields.get("metrics"), f"{where}metrics"):
                yield Fields({**fields, **as_object(metrics, f"{where}metrics"), "model": model, "set": name}, where)


def _run(fields: Fields) -> Told:
    name, batch = fields.text("Name") or "", fields.count("batch_size")
    steps, topk, nodes = (fields.count(key) for key in ("steps", "topk", "num_draft_tokens"))
    if not (steps and topk and nodes and nodes > 1):
        raise BadInputError(f"{fields.where} lacks steps, topk or num_draft_tokens above 1")
    plain = fields.number("accept_length") == 1.0
    told = Told(arm=Arm.BASELINE if plain else Arm.SPECULATIVE)
    told.label = "/".join(
        [str(fields.text("model")), str(fields.text("set")), f"b{batch}", f"{steps},{topk},{nodes}", told.arm.value if told.arm else ""]
    )
    told.arguments = {"model": str(fields.text("model")), "dataset_name": str(fields.text("set")), "name": name}
    stated_load(rate_per_s=None, concurrency=batch, requests=None, told=told)
    rate, length = fields.positive("output_throughput"), fields.positive("accept_length")
    if rate is not None:
        told.summaries["output_tokens_per_s"] = summary(rate, "pooled", None)
    if not plain:
        _drafting(told, name, steps=steps, topk=topk, nodes=nodes)
        if length is not None:
            told.summaries["acceptance_length"] = summary(length, "mean", None)
            told.cautions.append(LENGTH_IS_CONDITIONAL)
    return told


def _drafting(told: Told, name: str, *, steps: int, topk: int, nodes: int) -> None:
    if "eagle3" in name.casefold():
        tree = Tree(depth=steps, topk=topk, nodes=nodes - 1) if topk > 1 else None
        told.speculation = Speculation(method=Method.EAGLE3, draft_tokens=steps, tree=tree)
