"""Both arms as a docker compose file or as Kubernetes manifests.

Whatever a user typed stays data: every text is quoted, a `$` is doubled where compose would fill in a variable, and so is that of `$(` in
Kubernetes. A secret is named, never written: HF_TOKEN comes from the shell's environment or from the Secret `huggingface`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from paceline.errors import ascii_controls
from paceline.run import Arm
from paceline.servers.server_start import CONTAINERS, ServerStart
from paceline.servers.yaml_text import yaml_text

__all__ = ["compose_text", "image_of", "kubernetes_text"]

UNNAMED_IMAGE = "IMAGE"
TOKEN = "HF_TOKEN"  # noqa: S105 - the variable's name
SECRET = {"name": "huggingface", "key": "token", "optional": True}  # a Secret of the cluster, by reference
CACHE, CACHE_PATH = "model-cache", "/models/cache"
FILES_PATH = "/etc/paceline"
SHARED_MEMORY = "16Gi"
POLL_S, LONGEST_START = 10, 180  # half an hour for weights to come and graphs to be captured
MOST_NAME = 40


def image_of(engine: str, version: str, *, asked: str | None) -> tuple[str, tuple[str, ...]]:
    """The image of an engine in a version, and what to note where it has to be filled in."""
    known = CONTAINERS[engine].image
    if asked is not None:
        return asked, ()
    if known is not None:
        return known.format(version=version), ()
    return UNNAMED_IMAGE, (f"put the image of {engine} {version} where {UNNAMED_IMAGE} stands, or give --image",)


def compose_text(arms: Mapping[Arm, ServerStart], *, image: str, gpus: int, notes: Sequence[str]) -> str:
    """A compose file with one service per arm, each under a profile of its own name, so that one runs at a time on one machine."""
    services, files = {}, {}
    for at, (arm, start) in enumerate(arms.items()):
        container = CONTAINERS[start.engine]
        names = {name: f"{arm.value}-{_label(name)}" for name in start.files}
        files.update({names[name]: {"content": content} for name, content in start.files.items()})
        services[arm.value] = {
            "image": image,
            "profiles": [arm.value],
            "entrypoint": [],
            "command": _words(start),
            "environment": [TOKEN, f"HF_HOME={CACHE_PATH}"],
            "ports": [f"127.0.0.1:{container.port + at}:{container.port}"],
            "volumes": [{"type": "volume", "source": CACHE, "target": CACHE_PATH}],
            "ipc": "host",
            "labels": {"arm": arm.value},
            "healthcheck": {
                "test": ["CMD", "curl", "--fail", "--silent", f"http://127.0.0.1:{container.port}{container.health}"],
                "interval": f"{POLL_S}s",
                "retries": 3,
                "start_period": f"{POLL_S * LONGEST_START}s",
            },
            "deploy": {"resources": {"reservations": {"devices": [{"driver": "nvidia", "count": gpus, "capabilities": ["gpu"]}]}}},
            **({"configs": [{"source": source, "target": f"{FILES_PATH}/{name}"} for name, source in names.items()]} if names else {}),
        }
    document = {"services": services, "volumes": {CACHE: {}}, **({"configs": files} if files else {})}
    return _commented(notes, yaml_text(_map(document, lambda text: text.replace("$", "$$"))))


def kubernetes_text(arms: Mapping[Arm, ServerStart], *, name: str, image: str, gpus: int, notes: Sequence[str]) -> str:
    """A Deployment and a Service for each arm, told apart by the label `arm`, and the files they read as ConfigMaps."""
    documents = []
    for arm, start in arms.items():
        called = f"{_label(name)}-{arm.value}"
        labels = {"app": _label(name), "arm": arm.value}
        if start.files:
            documents.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": _named(called, labels), "data": dict(start.files)})
        documents += [_deployment(start, called, labels, image=image, gpus=gpus), _service(start, called, labels)]
    return _commented(notes, yaml_text(*documents))


def _deployment(start: ServerStart, called: str, labels: Mapping[str, str], *, image: str, gpus: int) -> dict[str, Any]:
    container = CONTAINERS[start.engine]
    health = {"httpGet": {"path": container.health, "port": "http"}, "periodSeconds": POLL_S}
    mounts = [{"name": "cache", "mountPath": CACHE_PATH}, {"name": "shared-memory", "mountPath": "/dev/shm"}]  # noqa: S108 - NCCL's
    volumes: list[dict[str, Any]] = [
        {"name": "cache", "emptyDir": {}},
        {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": SHARED_MEMORY}},
    ]
    if start.files:
        mounts.append({"name": "files", "mountPath": FILES_PATH})
        volumes.append({"name": "files", "configMap": {"name": called}})
    server = {
        "name": "server",
        "image": image,
        "command": [each.replace("$(", "$$(") for each in _words(start)],
        "env": [{"name": TOKEN, "valueFrom": {"secretKeyRef": dict(SECRET)}}, {"name": "HF_HOME", "value": CACHE_PATH}],
        "ports": [{"name": "http", "containerPort": container.port}],
        "startupProbe": {**health, "failureThreshold": LONGEST_START},
        "readinessProbe": {**health, "failureThreshold": 3},
        "resources": {"limits": {"nvidia.com/gpu": gpus}},
        "volumeMounts": mounts,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _named(called, labels),
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": dict(labels)},
            "template": {"metadata": {"labels": dict(labels)}, "spec": {"containers": [server], "volumes": volumes}},
        },
    }


def _service(start: ServerStart, called: str, labels: Mapping[str, str]) -> dict[str, Any]:
    port = {"name": "http", "port": CONTAINERS[start.engine].port, "targetPort": "http"}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _named(called, labels), "spec": {"selector": dict(labels), "ports": [port]}}


def _named(called: str, labels: Mapping[str, str]) -> dict[str, Any]:
    return {"name": called, "labels": dict(labels)}


def _words(start: ServerStart) -> list[str]:
    """The command inside the container: files at their mounts, and listening to its address."""
    container = CONTAINERS[start.engine]
    program, *words = start.command
    return [container.program or program, *(f"{FILES_PATH}/{each}" if each in start.files else each for each in words), *container.listen]


def _label(text: str) -> str:
    """A name as Kubernetes and compose take it: letters, digits and dashes."""
    kept = re.sub(r"[^a-z0-9]+", "-", text.rstrip("/").rpartition("/")[2].casefold())[:MOST_NAME].strip("-")
    return kept if kept[:1].isalpha() else f"model-{kept}".rstrip("-")


def _map(value: Any, change: Any) -> Any:
    """The document with every text in it changed; keys stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _map(each, change) for key, each in value.items()}
    return [_map(each, change) for each in value] if isinstance(value, list) else value


def _commented(notes: Sequence[str], text: str) -> str:
    """Notes as comments above it, one line each."""
    return "".join(f"# {ascii_controls(each)}\n" for each in notes) + text
