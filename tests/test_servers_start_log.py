"""Why a server did not start, found in its log."""

import pytest

from paceline.servers.start_log import is_about_port, telling_line

VLLM = """\
(APIServer pid=812) INFO 11-29 22:10:01 [api_server.py:1971] vLLM API server version 0.32.0
(EngineCore_DP0 pid=911) ERROR 11-29 22:10:08 [core.py:843] EngineCore failed to start.
(EngineCore_DP0 pid=911) ERROR 11-29 22:10:08 [core.py:843] Traceback (most recent call last):
(EngineCore_DP0 pid=911) ERROR 11-29 22:10:08 [core.py:843]   File "/opt/vllm/engine/core.py", line 839, in run_engine_core
(EngineCore_DP0 pid=911) ERROR 11-29 22:10:08 [core.py:843] ValueError: Target and draft model should have the same vocabulary size.
(APIServer pid=812) Traceback (most recent call last):
(APIServer pid=812)   File "/opt/vllm/engine/utils.py", line 640, in wait_for_engine_startup
(APIServer pid=812) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore_DP0': 1}
"""
PYDANTIC = """\
Traceback (most recent call last):
  File "/opt/vllm/config/speculative.py", line 12, in __post_init__
pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig
  Value error, num_speculative_tokens:5 must be divisible by n_predict=2 [type=value_error, input_value=ArgsKwargs]
    For further information visit the documentation
"""
LLAMA = """\
0.04.402.212 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 8192, kv_unified = 'true'
0.04.406.879 E srv    load_model: failed to initialize speculative decoding context: synthetic acceptance length must be within [1, 3]
0.04.407.244 I srv    operator(): operator(): cleaning up before exit...
0.04.421.745 E srv  llama_server: exiting due to model loading error
"""


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (VLLM, "ValueError: Target and draft model should have the same vocabulary size."),
        (
            PYDANTIC,
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig Value error, num_speculative_tokens:5 "
            "must be divisible by n_predict=2 [type=value_error, input_value=ArgsKwargs]",
        ),
        ("x.ValidationError: 1 validation error for A\n\n", "x.ValidationError: 1 validation error for A"),
        (LLAMA, "failed to initialize speculative decoding context: synthetic acceptance length must be within [1, 3]"),
        ("error: invalid argument: --draft-max\n", "error: invalid argument: --draft-max"),
        ("usage: vllm [-h]\nvllm: error: unrecognized arguments: --spec 3\n", "vllm: error: unrecognized arguments: --spec 3"),
        (
            "[2026-11-29 22:10:08 TP0] Scheduler hit an exception:\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"
            "RuntimeError: x\n",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
        ),
        ("ValueError: first\n  more\nKeyError: 'second'\n", "KeyError: 'second'"),
        ("failed to load model 'a': no such file\nfailed to load model 'a'\n", "failed to load model 'a': no such file"),
        ("Starting.\nRunning.\n", None),
        ("", None),
    ],
)
def test_the_line_that_tells_is_found_without_its_prefix(log: str, told: str | None) -> None:
    """Whoever reads "see root cause above" has to open the log and look for it in thousands of lines."""
    assert telling_line(log.splitlines()) == told


def test_a_taken_port_is_told_apart() -> None:
    """Another port helps there, and nowhere else."""
    line = "OSError: [Errno 98] error while attempting to bind on address ('127.0.0.1', 8000): address already in use"
    assert is_about_port(telling_line([line]) or "")
    assert not is_about_port("ValueError: x")


def test_a_line_without_end_is_cut() -> None:
    """A configuration of ten thousand characters is no sentence."""
    assert len(telling_line([f"ValueError: {'x' * 5000}"]) or "") == 300
