"""The kinds of benchmark file that are read, in the order in which they are asked; each is recognised by its content, never by its name."""

from paceline.files.benchfile.aiperf import is_aiperf_aggregates, is_aiperf_records, read_aiperf_aggregates, read_aiperf_records
from paceline.files.benchfile.answer import is_answer, read_answer
from paceline.files.benchfile.guidellm import is_guidellm, read_guidellm
from paceline.files.benchfile.inference_perf import is_inference_perf, read_inference_perf
from paceline.files.benchfile.llama_timings import is_llama_timings, read_llama_timings
from paceline.files.benchfile.refused import REFUSED
from paceline.files.benchfile.sglang import is_sglang, read_sglang
from paceline.files.benchfile.specforge import is_specforge, read_specforge
from paceline.files.benchfile.speculation_profile import is_speculation_profile, read_speculation_profile
from paceline.files.benchfile.vllm_json import is_vllm_json, read_vllm_json
from paceline.files.benchfile.vllm_text import is_vllm_text, read_vllm_text
from paceline.files.found import Recogniser

__all__ = ["BENCHFILES"]

BENCHFILES = (
    *REFUSED,
    Recogniser("vllm bench serve JSON", is_vllm_json, read_vllm_json),
    Recogniser("vllm bench serve console output", is_vllm_text, read_vllm_text),
    Recogniser("SGLang bench_serving JSON lines", is_sglang, read_sglang),
    Recogniser("SpecForge benchmark tables", is_specforge, read_specforge),
    Recogniser("aiperf records", is_aiperf_records, read_aiperf_records),
    Recogniser("aiperf aggregates", is_aiperf_aggregates, read_aiperf_aggregates),
    Recogniser("guidellm reports", is_guidellm, read_guidellm),
    Recogniser("inference-perf reports", is_inference_perf, read_inference_perf),
    Recogniser("llama.cpp timings", is_llama_timings, read_llama_timings),
    Recogniser("speculation_profile.json", is_speculation_profile, read_speculation_profile),
    Recogniser("one answer of a server", is_answer, read_answer),
)
