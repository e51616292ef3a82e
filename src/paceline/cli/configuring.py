"""What the verb `config` does once it is asked."""

import argparse
import json

from paceline.cli.options import scenario_asked
from paceline.cli.output import answer
from paceline.cli.replica_options import asked_table
from paceline.jobs.launch import Commands, Gguf, engine_version, launch_commands
from paceline.jobs.scenario import config_hashes, on_disk, scenario
from paceline.jobs.simulation import limits_of
from paceline.report.manifests import compose_text, image_of, kubernetes_text
from paceline.report.operations import compatibility_dict, config_text
from paceline.servers.vllm.config import NAMES
from paceline.servers.vllm.versions import combines, vllm_version
from paceline.servers.yaml_text import yaml_text

__all__ = ["run_config"]


def run_config(options: argparse.Namespace) -> int:
    """`config`: both arms' commands, and what the method combines with in that version."""
    asked, version = scenario_asked(options), engine_version(options.engine, options.engine_version)
    found = scenario(asked)
    lengths = asked_table(options)
    commands = launch_commands(
        asked,
        found,
        version,
        ngram=(options.ngram_min, options.ngram_max),
        limits=limits_of(options.max_requests, options.token_budget),
        by_batch=None if lengths is None else lengths.entries,
        gguf=Gguf(target=options.gguf, draft=options.draft_gguf),
    )
    rows = combines(NAMES[asked.method], vllm_version(str(version))) if options.engine == "vllm" else ()
    arms = {arm.value: start.shell for arm, start in commands.starts.items()}
    files = {name: content for start in commands.starts.values() for name, content in start.files.items()}
    body = {
        "engine": options.engine,
        "engine_version": str(version),
        "commands": arms,
        "files": files,
        "speculative_config": commands.config,
        "compatibility": compatibility_dict(rows),
        "notes": list(commands.notes),
    }
    if options.emit == "command":
        text = config_text(arms, rows, files=files, notes=commands.notes)
    else:
        text = emitted(options, commands, version=str(version).removeprefix("b"), gpus=found.where.gpus)
        body["emitted"] = text
    answer(options, body=body, text=text, inputs=config_hashes(asked))
    return 0


def emitted(options: argparse.Namespace, commands: Commands, *, version: str, gpus: int) -> str:
    """What `--emit` asks for; notes are comments in it, and left out of JSON."""
    if options.emit == "json":
        if options.engine == "tensorrt_llm":
            return yaml_text({"speculative_config": commands.config}).rstrip()
        return json.dumps({name: True if value is None else value for name, value in commands.config.items()}, indent=2, ensure_ascii=False)
    image, unnamed = image_of(options.engine, version, asked=options.image)
    paths = [each for each in (options.target, options.draft, options.gguf, options.draft_gguf) if each is not None and on_disk(each)]
    notes = (*commands.notes, *unnamed, *(f"a container does not see {each}: mount it there under the same path" for each in paths))
    if options.emit == "compose":
        return compose_text(commands.starts, image=image, gpus=gpus, notes=notes).rstrip()
    return kubernetes_text(commands.starts, name=options.target, image=image, gpus=gpus, notes=notes).rstrip()
