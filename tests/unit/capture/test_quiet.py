"""A session is quiet from `/perdure:quiet` until `/perdure:speak` or its end; other sessions are not."""

import os
import stat
from pathlib import Path

import pytest

from perdure.capture import quiet
from perdure.capture.events import HookEvent

PROMPT = HookEvent("claude-code", "prompt", "s1", prompt="which port?")


@pytest.mark.parametrize("command", ["/perdure:quiet", "perdure:quiet", " /perdure:quiet\n"])
def test_command_silences_its_session_alone(command: str, tmp_path: Path) -> None:
    assert "/perdure:speak" in quiet.follow_command(tmp_path, PROMPT._replace(prompt=command))
    assert quiet.is_quiet(tmp_path, PROMPT)
    assert not quiet.is_quiet(tmp_path, PROMPT._replace(session="s2"))
    assert not quiet.is_quiet(tmp_path, PROMPT._replace(client="codex"))
    assert [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "run/quiet").iterdir()] == [0o600]


@pytest.mark.parametrize("end", [PROMPT._replace(prompt="/perdure:speak"), PROMPT._replace(kind="session-end")])
def test_silence_ends_with_speak_or_the_session(end: HookEvent, tmp_path: Path) -> None:
    quiet.follow_command(tmp_path, PROMPT._replace(prompt="/perdure:quiet"))
    assert bool(quiet.follow_command(tmp_path, end)) == (end.kind == "prompt")
    assert not quiet.is_quiet(tmp_path, PROMPT)


@pytest.mark.parametrize("text", ["/perdure:quiet please", "why /perdure:quiet?", "/quiet", ""])
def test_other_messages_are_no_command(text: str, tmp_path: Path) -> None:
    assert quiet.follow_command(tmp_path, PROMPT._replace(prompt=text)) == "" and list(tmp_path.iterdir()) == []


def test_prompt_of_a_subagent_is_no_command(tmp_path: Path) -> None:
    event = PROMPT._replace(prompt="/perdure:quiet", agent="a1")
    assert quiet.follow_command(tmp_path, event) == "" and not quiet.is_quiet(tmp_path, PROMPT)


def test_file_of_a_lost_session_is_deleted_in_time(tmp_path: Path) -> None:
    quiet.follow_command(tmp_path, PROMPT._replace(prompt="/perdure:quiet"))
    (old_path,) = (tmp_path / "run/quiet").iterdir()
    os.utime(old_path, (0, 0))
    quiet.follow_command(tmp_path, PROMPT._replace(session="s2", prompt="/perdure:quiet"))
    assert not quiet.is_quiet(tmp_path, PROMPT) and quiet.is_quiet(tmp_path, PROMPT._replace(session="s2"))
