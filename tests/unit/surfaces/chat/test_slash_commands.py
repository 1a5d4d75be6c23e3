"""A line is a command or a message."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.surfaces.chat.slash_commands import COMMANDS, find_nearest, parse_command

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("/help", ("help", "")),
        (" /compact the  port ", ("compact", "the  port")),
        ("/notes a\nb", ("notes", "a\nb")),
        ("/etc/hosts is empty", None),
        ("/", None),
        ("/ what", None),
        ("what about /help", None),
        ("/help\nme", None),
        ("", None),
    ],
)
def test_parse(line: str, command: tuple[str, str] | None) -> None:
    assert parse_command(line) == command


def test_the_nearest_command_is_the_one_that_begins_so() -> None:
    assert [find_nearest(name) for name in ("re", "exitt", "serach", "qqq")] == ["recall", "exit", "search", ""]


def test_every_command_is_documented() -> None:
    page = (ROOT / "docs" / "chat.md").read_text(encoding="utf-8")
    shown = [f"/{command.name} {command.argument}".strip().replace("|", "\\|") for command in COMMANDS]
    assert [command for command in shown if f"`{command}`" not in page] == []
