"""Compose files and Kubernetes manifests: what a user typed stays data, secrets are named and never written."""

from typing import Any

import pytest
import yaml

from paceline.report.manifests import compose_text, image_of, kubernetes_text
from paceline.run import Arm
from paceline.servers.server_start import ServerStart
from paceline.servers.yaml_text import yaml_text

HOSTILE = "a\"b'c\n- d: {{ .Values.x }} $HOME ${X} $(Y) #e\t\\ 1e3 \u202e \x1b é"


def arms(*words: str, engine: str = "vllm", files: dict[str, str] | None = None) -> dict[Arm, ServerStart]:
    command = ("vllm", "serve", *words)
    return {
        Arm.BASELINE: ServerStart(engine=engine, command=command, files={}),
        Arm.SPECULATIVE: ServerStart(engine=engine, command=(*command, "--spec"), files=files or {}),
    }


def kubernetes(*words: str, name: str = "org/My.Model", **more: Any) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(kubernetes_text(arms(*words, **more), name=name, image="i:1", gpus=4, notes=())))


def compose(*words: str, **more: Any) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(compose_text(arms(*words, **more), image="i:1", gpus=4, notes=()))
    return document


def test_a_hostile_word_is_one_word_in_compose() -> None:
    """Whoever deploys a name from somebody else: it must not become a key, a variable or another word. Compose reads $$ as $."""
    words = compose(HOSTILE)["services"]["speculative"]["command"]
    assert words[2].replace("$$", "$") == HOSTILE
    assert words[2].count("$") == 2 * HOSTILE.count("$")
    assert words[3:5] == ["--spec", "--host"]


def test_a_hostile_word_is_one_word_in_kubernetes() -> None:
    """Whoever deploys the same there: a kubelet fills in $(NAME) and reads $$(NAME) as it stands."""
    container = kubernetes(HOSTILE)[2]["spec"]["template"]["spec"]["containers"][0]
    assert container["command"][2] == HOSTILE.replace("$(", "$$(")


def test_a_note_is_a_comment_and_nothing_else() -> None:
    """Whoever is told something about a name with a line break in it: the second line must not be YAML."""
    text = kubernetes_text(arms("m"), name="m", image="i", gpus=1, notes=("a\nkind: Secret",))
    assert text.splitlines()[0] == "# a\\nkind: Secret"
    assert [each["kind"] for each in yaml.safe_load_all(text)] == ["Deployment", "Service"] * 2


@pytest.mark.parametrize("value", ["1e3", "on", "~", "null", "0o14", "1_000", "2020-01-01", "", "- a", "a: b", "=", "<<"])
def test_no_reader_takes_a_text_for_anything_else(value: str) -> None:
    """Whoever has a model called 1e3: Go's reader takes it for a number where it is not quoted."""
    text = yaml_text({"a": value, "b": [value]})
    assert f'a: "{value}"' in text
    assert yaml.safe_load(text) == {"a": value, "b": [value]}


def test_equal_lists_are_written_twice() -> None:
    """Whoever edits one arm: an anchor would change both."""
    words = ["x"]
    assert "&" not in yaml_text({"a": words, "b": words})


def test_kubernetes_knows_when_a_server_serves_and_which_arm_it_is() -> None:
    """Whoever rolls out: traffic before the weights are there fails, and arms that look alike cannot be compared."""
    documents = kubernetes("m")
    assert [(each["kind"], each["metadata"]["name"], each["metadata"]["labels"]["arm"]) for each in documents] == [
        ("Deployment", "my-model-baseline", "baseline"),
        ("Service", "my-model-baseline", "baseline"),
        ("Deployment", "my-model-speculative", "speculative"),
        ("Service", "my-model-speculative", "speculative"),
    ]
    container = documents[2]["spec"]["template"]["spec"]["containers"][0]
    assert container["readinessProbe"]["httpGet"] == {"path": "/health", "port": "http"}
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 4}}
    assert container["ports"] == [{"name": "http", "containerPort": 8000}]
    assert documents[3]["spec"]["selector"] == documents[2]["spec"]["selector"]["matchLabels"] == documents[2]["metadata"]["labels"]


def test_secrets_are_named_and_never_written() -> None:
    """Whoever commits the file: a token in it is gone."""
    environment = kubernetes("m")[0]["spec"]["template"]["spec"]["containers"][0]["env"]
    assert environment[0] == {
        "name": "HF_TOKEN",
        "valueFrom": {"secretKeyRef": {"name": "huggingface", "key": "token", "optional": True}},
    }
    assert compose("m")["services"]["baseline"]["environment"][0] == "HF_TOKEN"


def test_files_are_mounted_where_the_command_looks() -> None:
    """Whoever serves with TensorRT-LLM: without its file the server runs with its defaults, drafts left out."""
    files = {"speculative.yaml": "a: $b\n"}
    documents = kubernetes("--config", "speculative.yaml", engine="tensorrt_llm", files=files)
    config, deployment = documents[2], documents[3]
    assert config["data"] == files
    pod = deployment["spec"]["template"]["spec"]
    assert pod["volumes"][-1] == {"name": "files", "configMap": {"name": config["metadata"]["name"]}}
    assert "/etc/paceline/speculative.yaml" in pod["containers"][0]["command"]
    document = compose("--config", "speculative.yaml", engine="tensorrt_llm", files=files)
    service = document["services"]["speculative"]
    assert service["configs"] == [{"source": "speculative-speculative-yaml", "target": "/etc/paceline/speculative.yaml"}]
    assert document["configs"]["speculative-speculative-yaml"]["content"] == "a: $$b\n"
    assert "configs" not in document["services"]["baseline"]


def test_one_arm_at_a_time_fits_one_machine() -> None:
    """Whoever starts both on one machine: the second finds no memory."""
    services = compose("m")["services"]
    assert {name: each["profiles"] for name, each in services.items()} == {"baseline": ["baseline"], "speculative": ["speculative"]}
    assert [each["ports"] for each in services.values()] == [["127.0.0.1:8000:8000"], ["127.0.0.1:8001:8000"]]


def test_the_program_is_where_the_image_has_it() -> None:
    """Whoever runs llama.cpp's image: its server is not on the path."""
    assert compose("m", engine="llamacpp")["services"]["baseline"]["command"][:2] == ["/app/llama-server", "serve"]


@pytest.mark.parametrize(("name", "label"), [("70b/", "model-70b"), ("...", "model"), ("A" * 60, "a" * 40)])
def test_a_name_is_one_that_a_cluster_takes(name: str, label: str) -> None:
    """Whoever has a model that starts with a digit: the cluster refuses such a name."""
    assert kubernetes("m", name=name)[0]["metadata"]["name"] == f"{label}-baseline"


def test_an_image_is_the_engine_s_own_or_asked_for() -> None:
    """Whoever deploys: a placeholder that nobody mentions never starts."""
    assert image_of("vllm", "0.32.0", asked=None) == ("vllm/vllm-openai:v0.32.0", ())
    assert image_of("vllm", "0.32.0", asked="mine:1") == ("mine:1", ())
    image, notes = image_of("llamacpp", "11434", asked=None)
    assert image == "IMAGE"
    assert "IMAGE stands" in notes[0]
