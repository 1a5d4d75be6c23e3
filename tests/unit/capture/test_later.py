"""What is kept for a session's next message."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from perdure.capture import transcripts


def test_text_is_given_once_and_only_to_its_session(tmp_path: Path) -> None:
    assert transcripts.take_pending_text(tmp_path, "gemini-cli", "s1") == ""
    transcripts.store_pending_text(tmp_path, "gemini-cli", "s1", "old")
    transcripts.store_pending_text(tmp_path, "gemini-cli", "s1", "Grüße \ud800")
    assert (
        transcripts.take_pending_text(tmp_path, "gemini-cli", "s2")
        == transcripts.take_pending_text(tmp_path, "codex", "s1")
        == ""
    )
    assert transcripts.take_pending_text(tmp_path, "gemini-cli", "s1") == "Grüße \ud800"
    assert transcripts.take_pending_text(tmp_path, "gemini-cli", "s1") == ""


def test_waiting_text_expires_in_a_day_and_stays_in_its_session(tmp_path: Path) -> None:
    transcripts.store_pending_text(tmp_path, "gemini-cli", "../s1", "the floor")
    (path,) = (tmp_path / "run" / "later").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    os.utime(path, (0, 0))
    transcripts.store_pending_text(tmp_path, "gemini-cli", "s2", "another")
    assert not path.exists() and transcripts.take_pending_text(tmp_path, "gemini-cli", "s2") == "another"
