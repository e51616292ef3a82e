"""Options that several verbs share, and how their text becomes values.

A conversion that fails ends with exit code 2 and quotes what was given.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

from paceline.errors import BadInputError, printable
from paceline.hardware import Dtype
from paceline.simulate.replica import Rejection
from paceline.speculation.method import Method, Tree

__all__ = [
    "SegmentShare",
    "VLLM_SUFFIX",
    "Verbs",
    "add_draws",
    "add_hardware",
    "add_json",
    "add_method",
    "add_replica",
    "add_seed",
    "add_simulation",
    "add_traffic",
    "add_verb",
    "counts",
    "duration",
    "finite",
    "fraction",
    "not_negative",
    "place",
    "positive",
    "positive_int",
    "positive_int_to",
    "probabilities",
    "reading",
    "scenario_asked",
    "segment_share",
    "tree",
    "whole_number",
]

if TYPE_CHECKING:
    from paceline.jobs.scenario import Asked
    from paceline.jobs.traffic import Reading

VLLM_SUFFIX: dict[str, Any] = {"depth": 24, "cached_requests": 10_000, "factor": 1.0, "least_probability": 0.1}
Verbs = Any  # argparse keeps the type of what add_subparsers returns to itself
Run = Callable[[argparse.Namespace], int]


def add_verb(verbs: Verbs, name: str, run: Run, *, question: str, example: str) -> argparse.ArgumentParser:
    """A verb with the question it answers and an example that runs as it stands."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=question,
        description=question,
        epilog=f"example:\n  {dedent(example).strip()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def finite(text: str) -> float:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise argparse.ArgumentTypeError(f"{printable(text)} is not a finite number")
    return value


def positive(text: str) -> float:
    """A number above 0."""
    value = finite(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{printable(text)} is not above 0")
    return value


def not_negative(text: str) -> float:
    """A number from 0 on."""
    value = finite(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{printable(text)} is below 0")
    return value


def fraction(text: str) -> float:
    """A number between 0 and 1."""
    value = finite(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{printable(text)} is not between 0 and 1; give a fraction, not percent")
    return value


def positive_int(text: str) -> int:
    """A whole number from 1 on."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value < 2**63:
        raise argparse.ArgumentTypeError(f"{printable(text)} is not a whole number from 1 on, of 63 bits at most")
    return value


def positive_int_to(most: int) -> Callable[[str], int]:
    """A parser of whole numbers from 1 to `most`."""

    def bounded(text: str) -> int:
        value = positive_int(text)
        if value > most:
            raise argparse.ArgumentTypeError(f"{printable(text)} is above {most}, the most there can be")
        return value

    return bounded


def whole_number(text: str) -> int:
    """A whole number from 0 on."""
    return 0 if text.strip() == "0" else positive_int(text)


def place(text: str) -> Path:
    """Where something is written: a path that is named."""
    if not text.strip():
        raise argparse.ArgumentTypeError("an empty name is no place to write to; give a folder or file")
    return Path(text)


def counts(text: str) -> tuple[int, ...]:
    """Whole numbers from 1 on, separated by commas, each once, sorted."""
    return tuple(sorted({positive_int(each) for each in text.split(",")}))


def probabilities(text: str) -> tuple[float, ...]:
    """Numbers between 0 and 1, separated by commas."""
    return tuple(fraction(each) for each in text.split(","))


UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def duration(text: str) -> float:
    """A time with its unit, in seconds: `100ms`, `90s`, `10m`, `2h`."""
    unit = next((each for each in UNITS_S if text.endswith(each)), None)
    if unit is None:
        raise argparse.ArgumentTypeError(f"{printable(text)} has no unit; write it like 100ms, 90s, 10m or 2h")
    return not_negative(text.removesuffix(unit)) * UNITS_S[unit]


@dataclass(frozen=True, slots=True)
class SegmentShare:
    """`name:share:alpha`: a segment, its share of generated tokens and its acceptance rate."""

    name: str
    share: float
    alpha: float


def segment_share(text: str) -> SegmentShare:
    """`chat:.7:.65`."""
    parts = text.rsplit(":", 2)
    if len(parts) != 3 or not parts[0]:
        raise argparse.ArgumentTypeError(f"{printable(text)} is not NAME:SHARE:ALPHA, as in chat:.7:.65")
    return SegmentShare(parts[0], fraction(parts[1]), fraction(parts[2]))


def tree(text: str) -> Tree:
    """`depth,topk,nodes`, with nodes enough to reach the depth."""
    try:
        depth, topk, nodes = (positive_int(each) for each in text.split(","))
        asked = Tree(depth=depth, topk=topk, nodes=nodes)
    except (ValueError, BadInputError) as fault:
        raise argparse.ArgumentTypeError(f"{printable(text)} is no tree depth,topk,nodes: {fault}") from None
    if nodes < depth:
        raise argparse.ArgumentTypeError(f"{printable(text)}: {nodes} nodes cannot reach depth {depth}")
    return asked


def drafting_method(text: str) -> Method | str:
    """A method, or what is none: `choices` judges that."""
    return Method(text) if text in list(Method) else text


def add_json(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")


def add_seed(parser: argparse.ArgumentParser) -> None:
    """`--seed`."""
    parser.add_argument("--seed", type=whole_number, default=1, help="seed of all chance; the same seed gives the same bytes (default 1)")


def add_hardware(parser: argparse.ArgumentParser) -> None:
    """The target and what it runs on."""
    group = parser.add_argument_group("target and hardware")
    group.add_argument("--target", default="llama-3.3-70b", help="a well-known model, a Hugging Face config.json, or its folder")
    group.add_argument("--gpu", default="h100", help="GPU by name, or a TOML file of one that is in no table (default h100)")
    group.add_argument(
        "--gpus", type=positive_int, default=None, metavar="N", help="GPUs the target is split over (default: as few as hold it)"
    )
    group.add_argument(
        "--dtype",
        type=Dtype,
        choices=list(Dtype),
        default=None,
        help="weights: bf16, fp8, int4 or fp4 (default: what the target's config.json states, fp8 for a well-known name)",
    )
    group.add_argument(
        "--memory-utilisation", type=fraction, default=0.9, metavar="SHARE", help="share of GPU memory the engine may use (default .9)"
    )


def add_method(parser: argparse.ArgumentParser, *, matches: bool, or_none: bool) -> None:
    """How tokens are drafted; with `matches` also what prompt lookup matches, where logs are replayed or a server is started; with
    `or_none`, perhaps not at all.
    """
    group = parser.add_argument_group("speculation")
    choices = [*map(str, Method), *(["none"] if or_none else [])]
    group.add_argument("--method", type=drafting_method, choices=choices, default=Method.EAGLE3, help="what drafts (default eagle3)")
    group.add_argument("--draft", default=None, metavar="NAME|DIR", help="the draft model: a well-known name, a config.json or its folder")
    group.add_argument("--draft-tokens", type=positive_int, default=3, metavar="K", help="tokens drafted per step (default 3)")
    group.add_argument(
        "--draft-vocab", type=positive_int, default=None, metavar="N", help="draft vocabulary of an EAGLE-3 head (default 32000)"
    )
    group.add_argument("--tree", type=tree, default=None, metavar="D,T,N", help="a draft tree: depth, children per node, nodes verified")
    if matches:
        add_ngram(group)


def add_ngram(group: Any) -> None:
    """Lengths that prompt lookup matches."""
    group.add_argument("--ngram-min", type=positive_int, default=2, metavar="N", help="shortest n-gram that counts as a match (default 2)")
    group.add_argument("--ngram-max", type=positive_int, default=4, metavar="N", help="longest n-gram looked for, first (default 4)")


def add_traffic(parser: argparse.ArgumentParser, *, tokenizer: str = "bytes, labelled as such") -> None:
    """How a log is read; `tokenizer` says with what where none is given."""
    group = parser.add_argument_group("traffic")
    group.add_argument("--tokenizer", type=Path, metavar="FILE", help=f"the target's tokenizer.json (default: {tokenizer})")
    group.add_argument(
        "--segment-field", metavar="NAME", help="the field or the trace's column that names the segment, dots for nested fields"
    )
    group.add_argument("--segment-rule", metavar="RULE", help="code-or-chat or single, where no field names the segment")


def add_replica(parser: argparse.ArgumentParser) -> None:
    """What one replica allows; both arms are started so."""
    group = parser.add_argument_group("replica")
    group.add_argument("--max-requests", type=positive_int, default=256, metavar="N", help="requests a replica runs at once (default 256)")
    group.add_argument("--token-budget", type=positive_int, default=8192, metavar="N", help="tokens per step (default 8192)")


def add_simulation(parser: argparse.ArgumentParser) -> None:
    """How many requests are simulated, and how their acceptance is drawn."""
    add_replica(parser)
    group = parser.add_argument_group("simulation")
    group.add_argument("--requests", type=positive_int, default=1000, metavar="N", help="requests measured in each arm (default 1000)")
    add_draws(group)
    group.add_argument(
        "--assume-output-tokens",
        type=positive_int,
        default=250,
        metavar="N",
        help="output length where the log has no answers (default 250)",
    )


def add_draws(group: Any) -> None:
    """How acceptance is drawn."""
    group.add_argument(
        "--spread", type=not_negative, default=0.5, metavar="SD", help="between-request spread of acceptance, in logits (default .5)"
    )
    group.add_argument(
        "--rejection",
        type=Rejection,
        choices=list(Rejection),
        default=Rejection.IN_PASS,
        help="where the token after a rejection comes from: the same pass (standard) or the textbook's second one",
    )


def reading(options: argparse.Namespace) -> "Reading":
    """How traffic is to be read."""
    from paceline.jobs.traffic import Reading
    from paceline.replay.ngram import NgramRule
    from paceline.replay.suffix import SuffixRule

    suffix = {name: getattr(options, f"suffix_{name}", value) for name, value in VLLM_SUFFIX.items()}
    rule = (
        SuffixRule(draft_tokens=options.draft_tokens, **suffix)
        if options.method == Method.SUFFIX
        else NgramRule(min_tokens=options.ngram_min, max_tokens=options.ngram_max, draft_tokens=options.draft_tokens)
    )
    return Reading(
        tokenizer=options.tokenizer,
        segment_rule=options.segment_rule,
        segment_field=options.segment_field,
        rule=rule,
        assumed_output_tokens=getattr(options, "assume_output_tokens", 1),
        seed=options.seed,
    )


def scenario_asked(options: argparse.Namespace) -> "Asked":
    """Target, hardware and speculation as typed; a tree's depth is the draft length. A dtype that was not typed is filled in, so that
    provenance states it.
    """
    from paceline.jobs.scenario import Asked, default_dtype

    if options.dtype is None:
        options.dtype = default_dtype(options.target)
    return Asked(
        target=options.target,
        gpu=options.gpu,
        gpus=options.gpus,
        dtype=options.dtype,
        utilisation=options.memory_utilisation,
        method=options.method,
        draft=options.draft,
        draft_tokens=options.draft_tokens if options.tree is None else options.tree.depth,
        draft_vocab=options.draft_vocab,
        tree=options.tree,
    )
