"""A folder that one process at a time writes into."""

import os
from pathlib import Path

import pytest

from paceline.errors import BadInputError
from paceline.files.folder_lock import lock_folder, only_writer


def test_a_second_writer_is_refused_and_told_what_to_do(tmp_path: Path) -> None:
    """Two trainings in one folder would each overwrite the other's weights, and go on from a mixture."""
    with (
        only_writer(tmp_path, verb="train-eagle3", option="--out"),
        pytest.raises(BadInputError, match=r"another paceline train-eagle3 is writing into .*; wait for it, or choose .* for --out"),
        only_writer(tmp_path, verb="train-eagle3", option="--out"),
    ):
        pass


def test_a_link_leads_to_the_same_lock(tmp_path: Path) -> None:
    """States that two trainings share through a link would be written by both."""
    (tmp_path / "states").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "states")
    with (
        only_writer(tmp_path / "states", verb="replay", option="--states"),
        pytest.raises(BadInputError, match="another paceline replay"),
        only_writer(tmp_path / "link", verb="replay", option="--states"),
    ):
        pass


def test_nothing_is_left_of_a_writer_that_ended(tmp_path: Path) -> None:
    """A training that was killed could never be gone on with. The system closes what a process leaves open, as is done here."""
    for _ in range(2):
        with only_writer(tmp_path, verb="replay", option="--states"):
            pass
        held = lock_folder(tmp_path, verb="replay", option="--states")
        assert held is not None
        os.close(held)
    assert list(tmp_path.iterdir()) == []
