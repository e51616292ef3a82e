"""What is prepared for the speculators library is what its own loader and loss make of rows and states."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional

from paceline.cli.main import main
from paceline.engine.checkpoint import open_checkpoint
from paceline.engine.rows import Row
from paceline.engine.speculators_data import final_gain
from paceline.engine.target import load_target
from paceline.errors import BadInputError
from tests.engine.tiny import CPU, model_folder
from tests.engine.trainable import prompts, talking_model


class FakeDataset:
    """Stands for the library's table: it writes its columns as JSON."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self.columns = columns

    from_dict = classmethod(lambda cls, columns: cls(columns))

    def with_format(self, kind: str) -> "FakeDataset":
        """Itself: JSON knows no tensors."""
        assert kind == "torch"
        return self

    def save_to_disk(self, folder: str) -> None:
        """Write `rows.json`."""
        plain = {name: [np.asarray(each).tolist() for each in column] for name, column in self.columns.items()}
        Path(folder, "rows.json").write_text(json.dumps(plain))


def prepared(folder: Path) -> list[str]:
    talking_model(folder / "target")
    prompts(folder / "chats.jsonl")
    words = ("train-eagle3", folder / "chats.jsonl", "--target", folder / "target", "--out", folder / "head", "--aux-layers", "1,2,3")
    return [*map(str, words), "--max-tokens", "8", "--draft-vocab", "6", "--for-speculators", str(folder / "data"), "--json"]


def test_rows_and_states_are_those_the_library_trains_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its training would run for a night on another target's law, for it checks the tokens and nothing else."""
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(Dataset=FakeDataset))  # as much of it as is used
    words = prepared(tmp_path)
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rows"], told["draft_vocab"], told["aux_layers"]) == (24, 6, [1, 2, 3])
    target = load_target(tmp_path / "target", dtype=torch.float32, device=CPU)
    gain = final_gain(open_checkpoint(tmp_path / "target"))
    rows = json.loads((tmp_path / "data" / "rows.json").read_text())
    answers = [json.loads(line) for line in (tmp_path / "head" / "training" / "answers.jsonl").read_text().splitlines()]
    wanted = {(*each["prompt_token_ids"], *each["token_ids"])[:-1]: len(each["prompt_token_ids"]) for each in answers}
    for number, (tokens, mask, size) in enumerate(zip(rows["input_ids"], rows["loss_mask"], rows["seq_len"], strict=True)):
        asked = wanted[tuple(tokens)]
        assert mask == [0] * asked + [1] * (len(tokens) - asked)
        assert size == len(tokens)
        held = load_file(tmp_path / "data" / "hidden_states" / f"hs_{number}.safetensors")
        assert held["token_ids"].tolist() == tokens
        assert held["hidden_states"].shape == (size, 4, target.hidden)
        [own] = target.forward([Row(torch.tensor(tokens), target.new_cache(), None, logits=size)], hidden_layers=(1, 2, 3))
        torch.testing.assert_close(held["hidden_states"][:, :3].float(), torch.stack(own.hidden, 1), atol=0.02, rtol=0.01)
        law = functional.rms_norm(held["hidden_states"][:, 3].float(), (target.hidden,), gain, 1e-6) @ target.head.T
        torch.testing.assert_close(law, own.logits, atol=0.03 * float(own.logits.std()), rtol=0.02)
    d2t, t2d = (np.load(tmp_path / "data" / f"{name}-6.npy") for name in ("d2t", "t2d"))
    assert t2d.nonzero()[0].tolist() == (np.arange(6) + d2t).tolist()
    assert main([*words, "--resume"]) == 2
    assert "is not empty; give --for-speculators another folder" in capsys.readouterr().err


def test_without_its_table_library_nothing_is_begun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target would answer for hours, and its answers could not be written."""
    monkeypatch.setitem(sys.modules, "datasets", None)  # how Python marks what cannot be imported
    assert main(prepared(tmp_path)) == 2
    assert "pip install datasets" in capsys.readouterr().err
    assert not (tmp_path / "head").exists()


def test_a_norm_that_adds_one_is_undone_with_it(tmp_path: Path) -> None:
    """Every law would be bent by a family's way of writing its weights."""
    folder = model_folder(tmp_path / "plain")
    plain = final_gain(open_checkpoint(folder))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "gemma2"}))
    torch.testing.assert_close(final_gain(open_checkpoint(folder)), plain + 1)


def test_a_target_without_such_a_norm_is_refused(tmp_path: Path) -> None:
    """The library would find no norm in it and fail after everything was written."""
    with pytest.raises(BadInputError, match=r"has no model.norm.weight"):
        final_gain(open_checkpoint(model_folder(tmp_path, "gpt-neox")))
