"""The commands that a person types in a chat: their table, and how a line names one. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NamedTuple


@dataclass(frozen=True)
class SlashCommand:
    """One command."""

    name: str  # without its slash
    argument: str  # as the help shows it
    help: str


COMMANDS = (
    SlashCommand("search", "TEXT", "find turns of all sessions by words and meaning"),
    SlashCommand("recall", "TEXT", "show what a model would get beside this message"),
    SlashCommand("why", "", "show what was put beside your last message, and why"),
    SlashCommand("history", "", "draw this session as a tree"),
    SlashCommand("resume", "[ID]", "list the sessions, or go on with one, or from an entry of one"),
    SlashCommand("clear", "", "begin a new session"),
    SlashCommand("compact", "[FOCUS]", "make a summary of the middle of this session now"),
    SlashCommand("plan", "", "plan: only what reads runs, until /plan again"),
    SlashCommand("notes", "[TEXT]", "show the notes, or add a line to them"),
    SlashCommand("profile", "", "show what is known about you"),
    SlashCommand("proposals", "", "show the changes of its own pages that the agent proposes"),
    SlashCommand("approve", "ID", "make a proposed change; it counts from the next session on"),
    SlashCommand("reject", "ID", "refuse a proposed change"),
    SlashCommand("model", "[ROLE|NAME]", "show the model, or let another one answer from here on"),
    SlashCommand("mode", "[MODE]", "show what tools may do, or change it: plan, ask, edits, yolo"),
    SlashCommand("cost", "", "show the tokens and the money of this session"),
    SlashCommand("help", "", "show this list"),
    SlashCommand("exit", "", "leave; Ctrl-D does the same"),
)
NAMES = tuple(command.name for command in COMMANDS)


def parse_command(line: str) -> tuple[str, str] | None:
    """Return (name, argument) of a line that is a command; None for a message.

    A line that begins with a path is a message: no command has another slash in its name.

    >>> parse_command("/compact  the port"), parse_command("/etc/hosts is empty, why?"), parse_command("/ what?")
    (('compact', 'the port'), None, None)
    """
    word, _, argument = line.strip().partition(" ")
    name = word.partition("\n")[0].removeprefix("/")
    if not word.startswith("/") or not name or "/" in name or "\n" in word:
        return None
    return name, argument.strip()


def find_nearest(name: str) -> str:
    """Return the command that an unknown name may mean; "" for none.

    >>> find_nearest("histroy"), find_nearest("comp"), find_nearest("zzz")
    ('history', 'compact', '')
    """
    similar = [*(known for known in NAMES if known.startswith(name)), *get_close_matches(name, NAMES)]
    return similar[0] if similar else ""


class CommandLine(NamedTuple):
    """A command of the command line; options of the caller stand between its words and its arguments."""

    words: Sequence[str]
    arguments: Sequence[str]


def find_command_line(name: str, argument: str, session: str) -> CommandLine | None:
    """Return the command of the command line that does the same; None for one that a chat does itself.

    >>> find_command_line("recall", "the port", "s1")
    CommandLine(words=['recall'], arguments=['--', 'the port'])
    """
    if name == "notes":
        return CommandLine(["floor", "note"], ["--", argument]) if argument else CommandLine(["floor", "show"], [name])
    lines = {
        "search": CommandLine(["search"], _split_words(argument)),
        "recall": CommandLine(["recall"], ["--", argument]),
        "why": CommandLine(["why"], ["--session", session]),
        "history": CommandLine(["sessions", "tree"], [session]),
        "profile": CommandLine(["floor", "show"], ["profile"]),
        "proposals": CommandLine(["floor", "proposals"], []),
    }
    return lines.get(name)


def _split_words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
