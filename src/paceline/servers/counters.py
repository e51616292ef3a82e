"""From the samples of a /metrics scrape to counters by engine, and from scrapes to what was counted in between.

Rules.

1. A series is matched by its whole name, `_total` included: `…_created` is a time, `…_per_pos_total` a breakdown.
2. An engine is told by every label that does not name the model or split a series (position, streaming or not): data-parallel ranks and
   replicas stay apart. The difference is taken per engine, then summed.
3. A series given twice with the same labels is refused: two scrapes in one text, or something that repeats itself.
4. A counter that fell was reset by a restart, and so was every other of its engine; what it counts since is the difference then, never a
   negative number. A process that started at another time is a restart too, even where its counters have overtaken.
5. A series that an engine had and has no more, while it still counts others, is half a scrape, and half a scrape is none.
6. What some engines export and others do not is left out: the sum over some of them is not the server's.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isfinite

from paceline.errors import BadInputError, UnknownNameError, printable
from paceline.run import Summary
from paceline.servers.prometheus_text import Sample
from paceline.verdict import Caution

__all__ = [
    "Change",
    "Counters",
    "EngineCounters",
    "Vocabulary",
    "buckets",
    "by_edge",
    "change",
    "every_counter_fell",
    "gauge_summary",
    "positions",
    "read_series",
]

STARTED = "process_start_time_seconds"
CREATED = "_created"
LARGEST_EXACT = 2.0**53
MOST_POSITIONS = 128
BUCKET, EDGE = "_bucket", "le"

EngineCounters = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The series of one server that we read, by their names without prefix.

    Attributes:
        dialect: the server's name, for messages.
        prefix: what its series begin with.
        counts: counters of whole numbers.
        totals: counters of seconds and the like.
        gauges: what goes up and down; never differenced.
        by_label: counts with a value per draft position or per upper edge of a bucket, and the label that holds it.
        splits: labels that split a series within one engine; summed over.
        aliases: older names of series.

    """

    dialect: str
    prefix: re.Pattern[str]
    counts: frozenset[str]
    totals: frozenset[str]
    gauges: frozenset[str]
    by_label: Mapping[str, str]
    splits: frozenset[str]
    aliases: Mapping[str, str]

    def series(self, name: str) -> str:
        """The series' name without its prefix, empty where it is none that we read."""
        prefix = self.prefix.match(name)
        rest = name[prefix.end() :] if prefix else ""
        rest = self.aliases.get(rest, rest)
        return rest if rest in self.counts or rest in self.totals or rest in self.gauges or rest in self.by_label else ""

    def recognises(self, samples: Iterable[Sample]) -> bool:
        """Whether any sample is one that we read."""
        return any(self.series(each.name) for each in samples)


@dataclass(frozen=True, slots=True)
class Counters:
    """One scrape of one model.

    Attributes:
        model: the served model's name, empty where the series do not say.
        engines: by engine, the value of each counter (`name`, for positions `name/position`) and gauge, the prefix taken off.
        started_at_s: when the process started, or where it does not say when the first of the series was created (Unix time); None where
            neither is exported.

    """

    model: str
    engines: Mapping[str, EngineCounters]
    started_at_s: float | None


@dataclass(frozen=True, slots=True)
class Change:
    """What was counted between the first and the last of several scrapes: by engine, their sum, and what to be cautious about."""

    engines: Mapping[str, EngineCounters]
    total: EngineCounters
    noted: tuple[Caution, ...]


def read_series(samples: Iterable[Sample], vocabulary: Vocabulary, *, model: str | None) -> Counters:
    """What a scrape says of one model; `model` None takes the only one there is.

    Raises:
        BadInputError: no such series, several models and none chosen, a series given twice, or a counter that is no count.
        UnknownNameError: no such model.

    """
    all_samples = tuple(samples)
    ours = [(name, each) for each in all_samples if (name := vocabulary.series(each.name))]
    if not ours:
        found = ", ".join(printable(each.name) for each in all_samples[:2])
        raise BadInputError(f"no {vocabulary.dialect} series among {len(all_samples)} samples ({found}, …)")
    chosen = _chosen_model({each.labels.get("model_name", "") for _, each in ours}, model)
    engines: dict[str, dict[str, float]] = {}
    seen: set[tuple[str, frozenset[tuple[str, str]]]] = set()
    for name, each in ours:
        if each.labels.get("model_name", "") != chosen:
            continue
        mark = (name, frozenset(each.labels.items()))
        if mark in seen:
            raise BadInputError(f"{printable(each.name)} is given twice for the same engine; give one scrape per file")
        seen.add(mark)
        counters = engines.setdefault(_engine(each.labels, vocabulary), {})
        value = _value(name, each, vocabulary)
        if value is not None:
            key = _key(name, each, vocabulary)
            counters[key] = counters.get(key, 0.0) + value
    return Counters(model=chosen, engines=engines, started_at_s=_started(all_samples, vocabulary))


def _started(samples: Sequence[Sample], vocabulary: Vocabulary) -> float | None:
    stated = [each.value for each in samples if each.name == STARTED and each.value is not None]
    if stated:
        return stated[0] if len(stated) == 1 else None
    created = [each.value for each in samples if each.value and each.name.endswith(CREATED) and _is_ours(each.name, vocabulary)]
    return min(created, default=None)


def _is_ours(name: str, vocabulary: Vocabulary) -> bool:
    """Whether `…_created` belongs to a counter or a histogram that we read."""
    stem = name.removesuffix(CREATED)
    return any(vocabulary.series(f"{stem}{ending}") for ending in ("_total", "_count"))


def every_counter_fell(before: Counters, after: Counters, vocabulary: Vocabulary) -> bool:
    """Whether some counter changed between two scrapes, and all that changed fell: a restart, or the two are swapped."""
    pairs = [
        (value, after.engines.get(engine, {}).get(name, value))
        for engine, values in before.engines.items()
        for name, value in values.items()
        if name not in vocabulary.gauges
    ]
    return any(now != then for then, now in pairs) and all(now <= then for then, now in pairs)


def _chosen_model(models: set[str], model: str | None) -> str:
    if model is None:
        if len(models) > 1:
            raise BadInputError(
                f"the scrape has {len(models)} models ({', '.join(map(printable, sorted(models)))}); choose one with --model"
            )
        return models.pop()
    if model not in models:
        raise UnknownNameError("model in the scrape", model, models)
    return model


def _engine(labels: Mapping[str, str], vocabulary: Vocabulary) -> str:
    apart = {"model_name", *vocabulary.splits, *vocabulary.by_label.values()}
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()) if name not in apart)


def _key(name: str, sample: Sample, vocabulary: Vocabulary) -> str:
    label = vocabulary.by_label.get(name)
    if label is None:
        return name
    text = sample.labels.get(label, "")
    if label == EDGE:
        return f"{name}/{_edge(text, sample)!r}"
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and int(text) < MOST_POSITIONS):
        raise BadInputError(f"position {printable(text)} of {printable(sample.name)} is not a number from 0 to {MOST_POSITIONS - 1}")
    return f"{name}/{int(text)}"


def _edge(text: str, sample: Sample) -> float:
    """The upper edge of a histogram's bucket; the last one's is infinite."""
    try:
        edge = float(text)
    except ValueError:
        edge = -1.0
    if not edge >= 0:
        raise BadInputError(f"edge {printable(text)} of {printable(sample.name)} is not a number from 0 on")
    return edge


def _value(name: str, sample: Sample, vocabulary: Vocabulary) -> float | None:
    value = sample.value
    if name in vocabulary.gauges:
        return value if value is not None and isfinite(value) else None
    whole = name not in vocabulary.totals
    if value is None or not 0 <= value <= LARGEST_EXACT or (whole and value != int(value)):
        kind = "a count" if whole else "a total"
        raise BadInputError(f"{printable(sample.name)} = {value!r} is not {kind} from 0 to 2^53")
    return value


def change(scrapes: Sequence[Counters], vocabulary: Vocabulary) -> Change:
    """What was counted between the first scrape and the last; since the server's start where there is one only.

    Raises:
        BadInputError: the scrapes are of different models, or one of them is cut off.

    """
    noted: list[Caution] = []
    if len(scrapes) == 1:
        engines = {engine: dict(each) for engine, each in scrapes[0].engines.items()}
    else:
        engines = {}
        for before, after in pairwise(scrapes):
            if before.model != after.model:
                raise BadInputError(f"one scrape is of {printable(before.model)}, a later one of {printable(after.model)}")
            _add_interval(engines, before, after, vocabulary, noted)
    total, uneven = _summed(engines, vocabulary)
    if uneven:
        noted.append(_uneven(uneven))
    return Change(engines=engines, total=total, noted=tuple(dict.fromkeys(noted)))


def _add_interval(
    engines: dict[str, dict[str, float]], before: Counters, after: Counters, vocabulary: Vocabulary, noted: list[Caution]
) -> None:
    """Add to each engine what it counted between two scrapes."""
    restarted = None not in (before.started_at_s, after.started_at_s) and before.started_at_s != after.started_at_s
    if restarted:
        noted.append(_reset("the server"))
    for engine, values in after.engines.items():
        earlier = {} if restarted else before.engines.get(engine, {})
        if not restarted and engine not in before.engines:
            noted.append(_appeared(engine))
        fell = sorted(name for name, value in earlier.items() if name not in vocabulary.gauges and values.get(name, value) < value)
        if fell:
            noted.append(_reset(f"engine {printable(engine)} ({printable(fell[0])} fell)"))
            earlier = {}
        _need_whole(engine, earlier, values, vocabulary)
        sums = engines.setdefault(engine, {})
        for name, value in values.items():
            sums[name] = value if name in vocabulary.gauges else sums.get(name, 0.0) + value - earlier.get(name, 0.0)
    noted.extend(_gone(engine) for engine in sorted(before.engines.keys() - after.engines.keys()))


def _need_whole(engine: str, earlier: EngineCounters, later: EngineCounters, vocabulary: Vocabulary) -> None:
    lost = sorted(name for name in earlier if name not in vocabulary.gauges and name not in later)
    if lost:
        raise BadInputError(
            f"engine {printable(engine)} had {printable(lost[0])} in one scrape and not in the next, though it counts on: half a scrape; "
            "scrape again"
        )


def _reset(what: str) -> Caution:
    return Caution(
        "counter_reset",
        f"{what} restarted between two scrapes: figures count from the restart on, what was done between the scrape before and the restart "
        "is missing",
    )


def _gone(engine: str) -> Caution:
    return Caution("engine_gone", f"engine {printable(engine)} is in an earlier scrape only: what it did afterwards is missing")


def _appeared(engine: str) -> Caution:
    return Caution(
        "engine_appeared",
        f"engine {printable(engine)} is missing in an earlier scrape: all that it ever counted is in the window, which is right only if it "
        "started then",
    )


def _uneven(names: Sequence[str]) -> Caution:
    return Caution(
        "series_missing",
        f"{printable(names[0])} is exported by some engines and not by others ({len(names)} such series): half a scrape, or engines of "
        "different versions; what only some export is left out",
    )


def _summed(engines: Mapping[str, EngineCounters], vocabulary: Vocabulary) -> tuple[dict[str, float], tuple[str, ...]]:
    """The sums over engines, and the series that not all of them export (positions may differ: engines may draft at other lengths)."""
    total: dict[str, float] = {}
    families: dict[str, int] = {}
    for each in engines.values():
        for family in {name.partition("/")[0] for name in each}:
            families[family] = families.get(family, 0) + 1
        for name, value in each.items():
            total[name] = total.get(name, 0.0) + value
    edges = {
        family: {frozenset(name for name in each if name.partition("/")[0] == family) for each in engines.values()}
        for family in families
        if family.endswith(BUCKET)
    }
    counting = sum(1 for each in engines.values() if any(name not in vocabulary.gauges for name in each))
    uneven = tuple(sorted(name for name, count in families.items() if count < counting and name not in vocabulary.gauges))
    apart = {*uneven, *(family for family, found in edges.items() if len(found) > 1)}
    return {name: value for name, value in total.items() if name.partition("/")[0] not in apart}, uneven


def positions(values: EngineCounters, name: str) -> tuple[int, ...] | None:
    """The counts of a series by position, 0 where one in between is missing; None where the series is."""
    at = {int(key.partition("/")[2]): int(value) for key, value in values.items() if key.startswith(f"{name}/")}
    return tuple(at.get(i, 0) for i in range(max(at) + 1)) if at else None


def buckets(values: EngineCounters, name: str) -> tuple[tuple[float, int], ...] | None:
    """A histogram's upper edges with how many observations lie at or below each; None where it has none, or they do not rise to its count.

    A sum over engines whose edges differ is none of a histogram's, and `change` leaves it out.
    """
    found = sorted((float(key.partition("/")[2]), int(value)) for key, value in values.items() if key.startswith(f"{name}{BUCKET}/"))
    rising = all(before[1] <= after[1] for before, after in pairwise(found))
    is_whole = bool(found) and found[-1] == (inf, values.get(f"{name}_count"))
    return tuple(found) if rising and is_whole else None


def by_edge(histograms: Iterable[str]) -> dict[str, str]:
    """The histograms' buckets, as `Vocabulary.by_label` names them."""
    return {f"{each}{BUCKET}": EDGE for each in histograms}


def gauge_summary(scrapes: Sequence[Counters], name: str, *, pooled: Callable[[Iterable[float]], float] = sum) -> Summary | None:
    """A gauge over the scrapes: its last value, or the mean over more than two with their range; None where it is not exported.

    `pooled` makes one value of the engines'.
    """
    seen = [[each[name] for each in scrape.engines.values() if name in each] for scrape in scrapes]
    values = [float(pooled(each)) for each in seen if each]
    if not values:
        return None
    if len(values) <= 2:
        return Summary(value=values[-1], statistic="last", n=None, low=None, high=None)
    mean = min(max(sum(values) / len(values), min(values)), max(values))
    return Summary(value=mean, statistic="mean of scrapes", n=len(values), low=min(values), high=max(values))
