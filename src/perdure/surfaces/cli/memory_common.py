"""How the command line names and shows a memory."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem
from msgspec.structs import asdict
from rich.text import Text

from perdure import text
from perdure.access.scan import scan
from perdure.errors import EditRefused, MemoryMissing, PerdureError, UsageError
from perdure.identity import find_project
from perdure.memories.remarks import Remarks
from perdure.memories.staleness import describe_changes
from perdure.surfaces.cli.common import Actions, Shell, format_count, format_time, format_time_and_age
from perdure.types import Memory, Span

if TYPE_CHECKING:  # costs 0.1 s; `--help` does not need it
    from perdure.home import Home
    from perdure.remote_home import RemoteHome

ID_PREFIX = "mem-"
_LINE_CHARS = 100
_MAX_COMPLETIONS = 50  # ids offered to the shell


def complete_memory_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """Return the ids of memories with this beginning, newest first, each with its words; none if no home can be
    read.
    """
    from perdure.home import open_home

    try:
        with open_home(ctx.params.get("home"), create=False) as home:
            memories = home.memories.list_memories(every=True)
    except PerdureError:  # completion has nowhere to show an error
        return []
    matches = [memory for memory in memories if memory.memory_id.startswith(incomplete)]
    return [CompletionItem(m.memory_id, help=text.one_line(m.text, 60)) for m in matches[:_MAX_COMPLETIONS]]


def read_words(words: Sequence[str], noun: str, *, page: str = "") -> str:
    """Return the words of an argument, or of standard input for a lone `-`.

    page: the page that the words are for. Raises UsageError for no words, EditRefused if words for a page are
    not UTF-8.
    """
    if tuple(words) == ("-",):
        try:
            return sys.stdin.buffer.read().decode("utf-8", "strict" if page else "replace")
        except UnicodeDecodeError as error:
            raise EditRefused(f"{text.printable(page)}: {noun} is not UTF-8; nothing was written") from error
    if not words:
        raise UsageError(f"give {noun}, or `-` to read it from standard input")
    return " ".join(words)


def resolve_project(home: Home | RemoteHome, name: str) -> str | None:
    """Return the project of a name: a folder's project, or the one known project whose path ends with it; None for
    "".

    Raises UsageError if several projects end with this name, or none does and there is no such folder.
    """
    if not name:
        return None
    matches = [path for path in home.runs.projects() if f"/{path}".endswith(f"/{name}")]
    if len(set(matches)) == 1:
        return str(matches[0])
    folder = Path(name).expanduser()
    if len(set(matches)) > 1 or not (folder.is_absolute() or folder.is_dir()):
        problem = "several projects end with this name" if matches else "no project or folder has this name"
        raise UsageError(f"project {name!r}: {problem}; write the path of its folder")
    return find_project(str(folder.absolute()))


def find_memory(home: Home | RemoteHome, name: str, *, retired: bool = False) -> Memory:
    """Return the memory of an id or its beginning, or the one that is current (or retired) at a path. Raises
    MemoryMissing.

    Raises UsageError if several memories match the path.
    """
    if name.startswith(ID_PREFIX):
        return home.memories.holder_of(name).get(name)
    matches = [memory for memory in home.memories.history(name) if (memory.retired if retired else memory.is_current)]
    if not matches:
        raise MemoryMissing(
            f"nothing at {name!r} is {'retired' if retired else 'believed'}; `perdure memories history` says more"
        )
    if len(matches) > 1:
        ids = ", ".join(memory.memory_id for memory in matches)
        raise UsageError(f"{name!r} matches several memories: give the id of one ({ids})")
    return matches[0]


# for programs -------------------------------------------------------------------------------------------------


def memory_to_json(memory: Memory) -> dict[str, Any]:
    """Convert a memory to JSON values."""
    fields = {name: value for name, value in asdict(memory).items() if name != "order"}
    derived = {"current": memory.is_current, "changes": _find_changes(memory)}
    derived |= {"conflict": conflict} if (conflict := _find_conflict(memory)) else {}
    return {**fields, "sources": [span._asdict() for span in memory.sources], **derived}


def sources_to_json(home: Home | RemoteHome, sources: Iterable[tuple[Span, str | None]]) -> list[dict[str, Any]]:
    """Convert sources to JSON values; a source that cannot be found any more has no turn."""
    return [
        {
            **span._asdict(),
            "turn_id": turn_id,
            "text": home.preview(turn_id) if turn_id else None,
            "resolved": turn_id is not None,
        }
        for span, turn_id in sources
    ]


def _find_changes(memory: Memory) -> str:
    """Return what has changed on this machine since a memory was stated; "" if it is somebody else's or of the past."""
    is_ours = memory.is_current and not memory.shared_by
    return describe_changes(memory.text, memory.project, memory.stated_at) if is_ours else ""


def _find_conflict(memory: Memory) -> str:
    """Return the note of its project's team that contradicts a memory of one's own; "" if there is none."""
    is_ours = memory.is_current and not memory.shared_by
    return Remarks(memory.project, scan).describe_conflict(memory.text, memory.project) if is_ours else ""


# for people ---------------------------------------------------------------------------------------------------


def format_marks(memory: Memory) -> str:
    """List the special states of a memory, in words."""
    is_ended = memory.ended_at is not None and memory.superseded_by is None
    changes, conflict = _find_changes(memory), _find_conflict(memory)
    flags = (
        ("pinned", memory.pinned),
        ("waits for review", memory.in_review),
        ("retired", memory.retired and not memory.in_review),
        ("superseded", memory.superseded_by is not None),
        (f"until {memory.ended_at:%Y-%m-%d}" if memory.ended_at else "", is_ended),
        (changes, bool(changes)),
        (conflict, bool(conflict)),
    )
    return ", ".join(name for name, is_set in flags if is_set)


def format_memory(memory: Memory, n_chars: int = _LINE_CHARS) -> Text:
    """Format a memory on two lines: its words with marks, then project, path, date, trust and id."""
    row = Text(text.one_line(memory.text, n_chars), style="" if memory.is_current else "dim")
    if marks_text := format_marks(memory):
        row.append(f"  [{marks_text}]", style="yellow")
    origin = f"shared by {memory.shared_by}" if memory.shared_by else memory.trust
    project = text.shorten_project(memory.project) or "all projects"
    time_text = format_time_and_age(memory.stated_at, datetime.now(UTC))
    details = f"\n    {project}  {memory.path}  {time_text}  {origin}  {memory.memory_id}"
    return row.append(text.printable(details), style="dim")


def format_source(source: dict[str, Any]) -> str:
    """Format a source on one line; a source that has no turn says so."""
    location = f"run {source['run_id'][:14]} bytes {source['from_offset']}-{source['to_offset']}"
    if not source["resolved"]:
        return f"UNRESOLVED  {location}: this home does not hold this turn"
    return f"{source['turn_id']}  {source['text']}"


def print_memory(shell: Shell, home: Home | RemoteHome, memory: Memory) -> None:
    """Print everything about a memory, for people."""
    shell.out.print(Text(text.printable(memory.text), style="bold"))
    for name, value in _list_details(home, memory):
        if value:
            shell.out.print(Text(f"  {name:<12}", style="dim") + Text(text.printable(value)))


def _list_details(home: Home | RemoteHome, memory: Memory) -> Iterable[tuple[str, str]]:
    yield "id", memory.memory_id
    yield "shared by", memory.shared_by
    yield "path", f"{memory.path} ({memory.kind})"
    yield "project", memory.project or "none: it holds in all projects"
    yield "stated", f"{format_time(memory.stated_at)}, noted {format_time(memory.recorded_at)}"
    yield "trust", f"{memory.trust} ({memory.how}), confidence {memory.confidence:.2f}"
    yield "valid", _format_validity(memory)
    yield "marks", format_marks(memory)
    use_counts = (
        f"{format_count(memory.n_injected, 'time')} shown with a message, {format_count(memory.n_used, 'time')} used"
    )
    yield "said", f"{format_count(memory.n_stated, 'time')}; {use_counts}"
    yield "names", ", ".join(memory.entities)
    for name, others in (("replaced", list_replaced(home, memory)), ("replaced by", list_successors(home, memory))):
        for related in others:
            yield name, f"{related.memory_id}  {format_time(related.stated_at)}  {text.one_line(related.text, 70)}"
    for name in memory.made_from:
        yield "made from", name
    for source in sources_to_json(home, home.memories.holder_of(memory.memory_id).sources(memory.memory_id)):
        yield "source", format_source(source)


def _format_validity(memory: Memory) -> str:
    bounds = (("from", memory.valid_from), ("until", memory.valid_until))
    return ", ".join(f"{name} {format_time(instant)}" for name, instant in bounds if instant)


def list_replaced(home: Home | RemoteHome, memory: Memory) -> list[Memory]:
    """Return the memories that this memory replaced, oldest first."""
    history = home.memories.holder_of(memory.memory_id).history(memory.memory_id)
    return [m for m in history if m.superseded_by == memory.memory_id]


def list_successors(home: Home | RemoteHome, memory: Memory) -> list[Memory]:
    """Return the memory that replaced this memory, if there is one."""
    successor_id = memory.superseded_by
    return [home.memories.holder_of(successor_id).get(successor_id)] if successor_id else []


def suggest_for_memory(memory: Memory) -> Actions:
    """Return the commands to try next with one memory."""
    return [
        (f"perdure memories history {memory.memory_id}", "show its history"),
        (f'perdure memories edit {memory.memory_id} "…"', "correct its text"),
        (f"perdure memories retire {memory.memory_id}", "retire it; `perdure forget` deletes it permanently"),
    ]
