"""Runs in vLLM's environment: whether vLLM takes a command line, up to and including its engine configuration and draft schedule.

Reads [[argument, …], …] (what follows `vllm serve`) and writes for each null, or the refusal. No model is loaded and no worker started.
"""

import contextlib
import io
import json
import logging
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"  # else each unknown name is looked for on the network, for minutes

from vllm import EngineArgs  # type: ignore[import-not-found]  # lives in vLLM's environment only
from vllm.entrypoints.launchers.cli_args import make_arg_parser  # type: ignore[import-not-found]
from vllm.utils.argparse_utils import FlexibleArgumentParser  # type: ignore[import-not-found]
from vllm.v1.spec_decode.dynamic.utils import (  # type: ignore[import-not-found]
    validate_and_normalize_dynamic_sd_schedule as check_schedule,
)


def refusal(parser: FlexibleArgumentParser, arguments: list[str]) -> str | None:
    """Why vLLM refuses these arguments, None where it takes them."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            options = parser.parse_args(arguments)
            options.model = options.model_tag or options.model
            speculation = EngineArgs.from_cli_args(options).create_engine_config().speculative_config
            if speculation is not None and speculation.num_speculative_tokens_per_batch_size is not None:
                check_schedule(speculation.num_speculative_tokens_per_batch_size)  # what the scheduler does first
    except SystemExit:
        return f"usage: {said.getvalue().strip().splitlines()[-1:]}"
    except Exception as error:  # whatever it is, the server does not start
        return f"{type(error).__name__}: {error}"
    return None


logging.disable(logging.CRITICAL)
asked = json.load(sys.stdin)
parser = make_arg_parser(FlexibleArgumentParser())
sys.stdout.write("\n" + json.dumps([refusal(parser, each) for each in asked]) + "\n")
