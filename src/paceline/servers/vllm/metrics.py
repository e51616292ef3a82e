"""From the samples of vLLM's /metrics to what was counted.

Rules. Counters are matched by their whole name, `_total` included: `…_created` is a time, `…_per_pos_total` a breakdown. An engine is
told by every label but the model's name and the position, so data-parallel ranks and Ray replicas stay apart: the difference is taken per
engine, then summed. A counter that fell was reset by a restart; what it counts since is the difference then, never a negative number. Ray
writes `_` for the colon and may put `ray_` in front.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite

from paceline.errors import BadInputError, UnknownNameError, printable
from paceline.servers.prometheus_text import Sample
from paceline.servers.vllm.window import Observed, V0Acceptance, VllmWindow
from paceline.verdict import Caution

__all__ = ["VllmCounters", "difference", "is_vllm", "read_counters"]

PREFIX = re.compile(r"(?:ray_)?vllm[:_]")
DRAFTS = "spec_decode_num_drafts_total"
DRAFTED = "spec_decode_num_draft_tokens_total"
ACCEPTED = "spec_decode_num_accepted_tokens_total"
EMITTED_V0 = "spec_decode_num_emitted_tokens_total"
PER_POSITION = "spec_decode_num_accepted_tokens_per_pos_total"
GENERATED = "generation_tokens_total"
PROMPT = "prompt_tokens_total"
PREEMPTED = "num_preemptions_total"
RUNNING = "num_requests_running"
RATE_V0 = "spec_decode_draft_acceptance_rate"
EFFICIENCY_V0 = "spec_decode_efficiency"
FIRST_TOKEN = "time_to_first_token_seconds"  # noqa: S105 - a metric's name, no password
STEP_GAP = "inter_token_latency_seconds"
STEP_GAP_BEFORE_0_15 = "time_per_output_token_seconds"
TPOT = "request_time_per_output_token_seconds"
E2E = "e2e_request_latency_seconds"
DECODE = "request_decode_time_seconds"
REQUEST_TOKENS = "request_generation_tokens"

HISTOGRAMS = (FIRST_TOKEN, STEP_GAP, STEP_GAP_BEFORE_0_15, TPOT, E2E, DECODE, REQUEST_TOKENS)
WHOLE = {DRAFTS, DRAFTED, ACCEPTED, EMITTED_V0, PER_POSITION, GENERATED, PROMPT, PREEMPTED, *(f"{each}_count" for each in HISTOGRAMS)}
TOTALS = {f"{each}_sum" for each in HISTOGRAMS}
GAUGES = {RUNNING, RATE_V0, EFFICIENCY_V0}
READ = WHOLE | TOTALS | GAUGES
STARTED = "process_start_time_seconds"

LARGEST_EXACT = 2.0**53
MOST_POSITIONS = 128
MOST_DRAFT_TOKENS_V0 = 32

Counters = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class VllmCounters:
    """One scrape of one model.

    Attributes:
        model: the served model's name.
        engines: by engine, the value of each counter (`name`, for positions `name/position`) and gauge, the prefix taken off.
        v0: whether these are the V0 engine's series.
        started_at_s: when the process started (Unix time), None where it does not say.

    """

    model: str
    engines: Mapping[str, Counters]
    v0: bool
    started_at_s: float | None


def is_vllm(samples: Iterable[Sample]) -> bool:
    """Whether any sample is one of vLLM's that we read."""
    return any(_series(each.name) for each in samples)


def read_counters(samples: Iterable[Sample], *, model: str | None) -> VllmCounters:
    """What a scrape says of one model; `model` None takes the only one there is.

    Raises:
        BadInputError: no vLLM series, several models and none chosen, a series given twice, or a counter that is no count.
        UnknownNameError: no such model.

    """
    all_samples = tuple(samples)
    ours = [(name, each) for each in all_samples if (name := _series(each.name))]
    if not ours:
        found = ", ".join(printable(each.name) for each in all_samples[:2])
        raise BadInputError(f"no vLLM series (vllm:…) among {len(all_samples)} samples ({found}, …)")
    chosen = _chosen_model({each.labels.get("model_name", "") for _, each in ours}, model)
    engines: dict[str, dict[str, float]] = {}
    for name, each in ours:
        if each.labels.get("model_name", "") != chosen:
            continue
        counters = engines.setdefault(_engine(each.labels), {})
        key = f"{name}/{_position(each)}" if name == PER_POSITION else name
        if key in counters:
            raise BadInputError(f"{printable(each.name)} is given twice for the same engine; give one scrape per file")
        value = _value(name, each)
        if value is not None:
            counters[key] = value
    started = [each.value for each in all_samples if each.name == STARTED and each.value is not None]
    v0 = any(_is_v0(counters, engine) for engine, counters in engines.items())
    return VllmCounters(model=chosen, engines=engines, v0=v0, started_at_s=started[0] if len(started) == 1 else None)


def _series(name: str) -> str:
    prefix = PREFIX.match(name)
    rest = name[prefix.end() :] if prefix else ""
    return rest if rest in READ else ""


def _chosen_model(models: set[str], model: str | None) -> str:
    if model is None:
        if len(models) > 1:
            raise BadInputError(f"the scrape has {len(models)} models ({', '.join(map(printable, sorted(models)))}); choose one")
        return models.pop()
    if model not in models:
        raise UnknownNameError("model in the scrape", model, models)
    return model


def _engine(labels: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()) if name not in ("model_name", "position"))


def _position(sample: Sample) -> int:
    text = sample.labels.get("position", "")
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and int(text) < MOST_POSITIONS):
        raise BadInputError(f"position {printable(text)} of {printable(sample.name)} is not a number from 0 to {MOST_POSITIONS - 1}")
    return int(text)


def _value(name: str, sample: Sample) -> float | None:
    value = sample.value
    if name in GAUGES:
        return value if value is not None and isfinite(value) else None
    if value is None or not 0 <= value <= LARGEST_EXACT or (name in WHOLE and value != int(value)):
        kind = "a count" if name in WHOLE else "a total"
        raise BadInputError(f"{printable(sample.name)} = {value!r} is not {kind} from 0 to 2^53")
    return value


def _is_v0(counters: Counters, engine: str) -> bool:
    if {RATE_V0, EFFICIENCY_V0, EMITTED_V0} & counters.keys():
        return True
    return ACCEPTED in counters and DRAFTS not in counters and not engine


def difference(before: VllmCounters | None, after: VllmCounters) -> VllmWindow:
    """What happened between two scrapes of one server; `before` None: since the server started.

    Raises:
        BadInputError: the scrapes are of different models or engines of different generations.

    """
    noted: list[Caution] = []
    deltas = [dict(each) for each in after.engines.values()]
    if before is not None:
        _need_comparable(before, after)
        restarted = None not in (before.started_at_s, after.started_at_s) and before.started_at_s != after.started_at_s
        deltas = [
            _delta(engine, {} if restarted else before.engines.get(engine, {}), each, noted) for engine, each in after.engines.items()
        ]
        if restarted:
            noted.append(_reset("the server"))
        noted.extend(_gone(engine) for engine in sorted(before.engines.keys() - after.engines.keys()))
    return _window(after, _summed(deltas), tuple(noted))


def _need_comparable(before: VllmCounters, after: VllmCounters) -> None:
    if before.model != after.model:
        raise BadInputError(f"the first scrape is of {printable(before.model)}, the second of {printable(after.model)}")
    if before.v0 != after.v0:
        raise BadInputError("one scrape is of the V0 engine, the other of V1; their counters mean different things")


def _delta(engine: str, before: Counters, after: Counters, noted: list[Caution]) -> dict[str, float]:
    fell = sorted(name for name, value in before.items() if name not in GAUGES and after.get(name, value) < value)
    if fell:
        noted.append(_reset(f"engine {printable(engine)} ({printable(fell[0])} fell)"))
        return dict(after)
    return {name: value if name in GAUGES else value - before.get(name, 0.0) for name, value in after.items()}


def _reset(what: str) -> Caution:
    return Caution("counter_reset", f"{what} restarted between the scrapes: figures cover the time since, not the whole window")


def _gone(engine: str) -> Caution:
    return Caution("engine_gone", f"engine {printable(engine)} is in the first scrape only: what it did in between is missing")


def _summed(deltas: Iterable[Counters]) -> dict[str, float]:
    total: dict[str, float] = {}
    for each in deltas:
        for name, value in each.items():
            total[name] = total.get(name, 0.0) + value
    return total


def _window(after: VllmCounters, total: Counters, noted: tuple[Caution, ...]) -> VllmWindow:
    def whole(name: str) -> int | None:
        return int(total[name]) if name in total else None

    def observed(name: str) -> Observed | None:
        count, sum_ = whole(f"{name}_count"), total.get(f"{name}_sum")
        return None if count is None or sum_ is None else Observed(total=sum_, count=count)

    return VllmWindow(
        model=after.model,
        engines=tuple(sorted(after.engines)),
        exports_speculation=DRAFTED in total or DRAFTS in total or after.v0,
        drafts=whole(DRAFTS),
        drafted_tokens=whole(DRAFTED),
        accepted_tokens=whole(ACCEPTED),
        accepted_per_position=_positions(total),
        generation_tokens=whole(GENERATED),
        prompt_tokens=whole(PROMPT),
        preemptions=whole(PREEMPTED),
        requests_running=whole(RUNNING),
        first_token=observed(FIRST_TOKEN),
        step_gap=None if after.v0 else observed(STEP_GAP) or observed(STEP_GAP_BEFORE_0_15),
        tpot=observed(TPOT),
        e2e=observed(E2E),
        decode=observed(DECODE),
        request_tokens=observed(REQUEST_TOKENS),
        v0=_v0_acceptance(total) if after.v0 else None,
        noted=noted,
    )


def _positions(total: Counters) -> tuple[int, ...] | None:
    by_position = {int(name.removeprefix(f"{PER_POSITION}/")): int(value) for name, value in total.items() if name.startswith(PER_POSITION)}
    return tuple(by_position.get(i, 0) for i in range(max(by_position) + 1)) if by_position else None


def _v0_acceptance(total: Counters) -> V0Acceptance:
    drafted, accepted, emitted = (total.get(name, 0.0) for name in (DRAFTED, ACCEPTED, EMITTED_V0))
    counted = accepted / drafted if drafted else None
    share = total.get(EFFICIENCY_V0, 0.0) * drafted / emitted if emitted else 0.0  # K / (K + 1)
    K = round(share / (1 - share)) if 0 < share < 1 else 0
    length = emitted * K / drafted if 1 <= K <= MOST_DRAFT_TOKENS_V0 else 0.0
    if not 1 <= length <= K + 1:
        return V0Acceptance(counted_alpha=counted, draft_tokens=None, acceptance_length=None, alpha=None)
    return V0Acceptance(counted_alpha=counted, draft_tokens=K, acceptance_length=length, alpha=(length - 1) / K)
