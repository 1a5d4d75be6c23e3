"""What is kept for a session's next message."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from perdure.capture import later


def test_it_is_given_once_and_to_its_session_alone(tmp_path: Path) -> None:
    assert later.take(tmp_path, "gemini-cli", "s1") == ""
    later.put(tmp_path, "gemini-cli", "s1", "old")
    later.put(tmp_path, "gemini-cli", "s1", "Grüße \ud800")
    assert later.take(tmp_path, "gemini-cli", "s2") == later.take(tmp_path, "codex", "s1") == ""
    assert later.take(tmp_path, "gemini-cli", "s1") == "Grüße \ud800"
    assert later.take(tmp_path, "gemini-cli", "s1") == ""


def test_what_no_message_came_for_goes_after_a_day_and_is_nobody_elses(tmp_path: Path) -> None:
    later.put(tmp_path, "gemini-cli", "../s1", "the floor")
    (path,) = (tmp_path / "run" / "later").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    os.utime(path, (0, 0))
    later.put(tmp_path, "gemini-cli", "s2", "another")
    assert not path.exists() and later.take(tmp_path, "gemini-cli", "s2") == "another"
