"""A scrape of any server that we read: which dialect it is, told by what is in it, and what several of them say together.

| dialect | told by |
|---|---|
| vLLM | series `vllm:…` (Ray: `ray_vllm_…`) |
| SGLang | series `sglang:…` |
| llama.cpp | series `llamacpp:…` |
| LMDeploy | series `lmdeploy:…` |
| TensorRT-LLM | series `trtllm_…`, or a JSON list of iterations |

Series of two servers in one text are refused: a figure of both is a figure of none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from paceline.errors import BadInputError, printable
from paceline.servers.counters import Counters, every_counter_fell
from paceline.servers.llamacpp import metrics as llamacpp
from paceline.servers.lmdeploy import metrics as lmdeploy
from paceline.servers.prometheus_text import MalformedLine, parse_exposition
from paceline.servers.sglang import metrics as sglang
from paceline.servers.tensorrt_llm import iterations
from paceline.servers.tensorrt_llm import metrics as tensorrt_llm
from paceline.servers.tensorrt_llm.iterations import Iterations
from paceline.servers.vllm import metrics as vllm
from paceline.servers.window import Window
from paceline.verdict import Caution

__all__ = ["Dialect", "METRICS_WE_READ", "Scrape", "read_scrape", "restart_or_swap", "window_of"]

METRICS_WE_READ = "vLLM, SGLang, llama.cpp, LMDeploy or TensorRT-LLM"


class Dialect(StrEnum):
    """Whose metrics they are."""

    VLLM = "vllm"
    SGLANG = "sglang"
    LLAMACPP = "llamacpp"
    LMDEPLOY = "lmdeploy"
    TENSORRT_LLM = "tensorrt_llm"


HOMES = {
    Dialect.VLLM: (vllm.is_vllm, vllm.read_counters, vllm.window),
    Dialect.SGLANG: (sglang.is_sglang, sglang.read_counters, sglang.window),
    Dialect.LLAMACPP: (llamacpp.is_llamacpp, llamacpp.read_counters, llamacpp.window),
    Dialect.LMDEPLOY: (lmdeploy.is_lmdeploy, lmdeploy.read_counters, lmdeploy.window),
    Dialect.TENSORRT_LLM: (tensorrt_llm.is_tensorrt_llm, tensorrt_llm.read_counters, tensorrt_llm.window),
}


@dataclass(frozen=True, slots=True)
class Scrape:
    """One scrape, read: whose it is, what it says, and the lines of it that could not be read."""

    dialect: Dialect
    said: Counters | Iterations
    malformed: tuple[MalformedLine, ...]


def read_scrape(text: str, *, model: str | None) -> Scrape:
    """What a /metrics answer says of one model; `model` None takes the only one there is.

    Raises:
        BadInputError: nothing that we read, series of two servers, cut off, several models and none chosen, a series given twice, or a
            counter that is no count.
        UnknownNameError: no such model.

    """
    if iterations.is_iterations(text):
        return Scrape(dialect=Dialect.TENSORRT_LLM, said=iterations.read_iterations(text), malformed=())
    exposition = parse_exposition(text)
    found = [dialect for dialect, (recognises, _, _) in HOMES.items() if recognises(exposition.samples)]
    if len(found) > 1:
        raise BadInputError(f"series of {' and '.join(found)} in one scrape; scrape one server at a time")
    if not found:
        first = ", ".join(printable(each.name) for each in exposition.samples[:2])
        raise BadInputError(f"a /metrics text without series of {METRICS_WE_READ} ({len(exposition.samples)} samples: {first}, …)")
    if not text.endswith("\n"):
        raise BadInputError("it ends in the middle of a line: cut off; scrape again (a whole scrape ends with a newline)")
    _, read, _ = HOMES[found[0]]
    return Scrape(dialect=found[0], said=read(exposition.samples, model=model), malformed=exposition.malformed)


VOCABULARIES = {
    Dialect.VLLM: vllm.VOCABULARY,
    Dialect.SGLANG: sglang.VOCABULARY,
    Dialect.LLAMACPP: llamacpp.VOCABULARY,
    Dialect.LMDEPLOY: lmdeploy.VOCABULARY,
    Dialect.TENSORRT_LLM: tensorrt_llm.VOCABULARY,
}


def restart_or_swap(before: Scrape, after: Scrape) -> Caution | None:
    """What to be cautious about where a later scrape may be the earlier one; None where nothing speaks for it.

    Raises:
        BadInputError: the scrapes are in the wrong order: the later one is of a process that started before, or every counter of one
            process fell.

    """
    earlier, later = before.said, after.said
    if isinstance(earlier, Iterations) or isinstance(later, Iterations) or before.dialect is not after.dialect:
        return None
    fell = every_counter_fell(earlier, later, VOCABULARIES[before.dialect])
    if earlier.started_at_s is None or later.started_at_s is None:
        told = (
            "every counter fell between the two scrapes: the server restarted, or before and after are swapped; look at when each was taken"
        )
        return Caution("counters_all_fell", told) if fell else None
    if later.started_at_s < earlier.started_at_s or (fell and later.started_at_s == earlier.started_at_s):
        why = "every counter of one process fell" if later.started_at_s == earlier.started_at_s else "the later one is of an earlier start"
        raise BadInputError(f"before and after look swapped: {why}; give them the other way round")
    return None


def window_of(scrapes: Sequence[Scrape]) -> Window:
    """What happened between the first scrape and the last; where there is one only, since the server's start (a list of iterations: since
    the reading before).

    Raises:
        BadInputError: the scrapes are of different servers or models, or one is cut off.

    """
    dialects = {(each.dialect, isinstance(each.said, Iterations)) for each in scrapes}
    if len(dialects) > 1:
        raise BadInputError(
            f"the scrapes are not of one kind ({', '.join(sorted({each for each, _ in dialects}))}); give two of one server"
        )
    listed = [each.said for each in scrapes if isinstance(each.said, Iterations)]
    if listed:
        return iterations.window(listed)
    _, _, window = HOMES[scrapes[0].dialect]
    return window([each.said for each in scrapes if isinstance(each.said, Counters)])
