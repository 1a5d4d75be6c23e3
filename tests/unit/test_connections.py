"""The folder of a home: made only where that was asked for, and for its owner's eyes alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.connections import prepare_folder
from perdure.errors import HomeMissing, UsageError


def test_a_home_is_its_owners_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with pytest.raises(HomeMissing):
        prepare_folder(home, create=False, read_only=False)
    with pytest.raises(HomeMissing):
        prepare_folder(home, create=True, read_only=True)
    home.mkdir(mode=0o755)
    assert prepare_folder(home, create=False, read_only=True) is False and home.stat().st_mode & 0o777 == 0o755
    assert prepare_folder(home, create=False, read_only=False) is True and home.stat().st_mode & 0o777 == 0o700


def test_a_file_is_no_home(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("x")
    with pytest.raises(UsageError, match="is not a folder"):
        prepare_folder(tmp_path / "home", create=True, read_only=False)
