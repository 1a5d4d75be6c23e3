"""How a memory is shown on the command line, and how one is named there."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem
from rich.text import Text

from perdure import text
from perdure.errors import EditRefused, MemoryMissing, PerdureError, UsageError
from perdure.identity import project_of
from perdure.surfaces.cli.common import Actions, Shell, day, plural
from perdure.types import Memory, Span

if TYPE_CHECKING:  # 0.1 s, which `--help` does without
    from perdure.home import Home
    from perdure.surfaces.afar_memories import Believed

ID_PREFIX = "mem-"
_LINE_CHARS = 100
_COMPLETED = 50  # ids offered to a shell


@contextmanager
def believing(shell: Shell, *, create: bool = False) -> Iterator[Home | Believed]:
    """The home whose memories a command is about, or what answers for it on a machine that has joined one."""
    thin = shell.thin()
    if thin is None:
        with shell.open(create=create) as home:
            yield home
        return
    from perdure.surfaces import afar
    from perdure.surfaces.afar_memories import Believed

    with afar.opened(thin) as there:
        yield Believed(there)


def complete_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """Ids of memories that begin so, newest first, each with its words; none where no home can be read."""
    from perdure.home import open_home

    try:
        with open_home(ctx.params.get("home"), create=False) as home:
            found = home.memories.listed(every=True)
    except PerdureError:  # a shell that completes has nowhere to show an error
        return []
    begins = [memory for memory in found if memory.memory_id.startswith(incomplete)]
    return [CompletionItem(m.memory_id, help=text.one_line(m.text, 60)) for m in begins[:_COMPLETED]]


def said(words: Sequence[str], what: str, *, page: str = "") -> str:
    """The words of an argument, or of standard input for a lone `-`. Raises EditRefused for bytes that are no text of
    a page.
    """
    if tuple(words) == ("-",):
        try:
            return sys.stdin.buffer.read().decode("utf-8", "strict" if page else "replace")
        except UnicodeDecodeError as error:
            raise EditRefused(f"{text.printable(page)}: {what} is not UTF-8; nothing was written") from error
    if not words:
        raise UsageError(f"say {what}, or `-` to read it from standard input")
    return " ".join(words)


def project_named(home: Home | Believed, name: str) -> str | None:
    """The project of a name: a folder's, or the one known project whose path ends so; None for "". Or UsageError."""
    if not name:
        return None
    known = [path for path in home.projects() if f"/{path}".endswith(f"/{name}")]
    if len(set(known)) == 1:
        return str(known[0])
    place = Path(name).expanduser()
    if len(set(known)) > 1 or not (place.is_absolute() or place.is_dir()):
        which = "several projects end so" if known else "no project or folder of that name"
        raise UsageError(f"project {name!r}: {which}; write the path of its folder")
    return project_of(str(place.absolute()))


def identified(home: Home | Believed, name: str, *, retired: bool = False) -> Memory:
    """The memory of an id or its beginning, or what is believed (or was retired) at a path. Raises MemoryMissing."""
    if name.startswith(ID_PREFIX):
        return home.holding(name).get(name)
    found = [memory for memory in home.memories.history(name) if (memory.retired if retired else memory.is_current)]
    if not found:
        raise MemoryMissing(
            f"nothing at {name!r} is {'retired' if retired else 'believed'}; `perdure memories history` says more"
        )
    if len(found) > 1:
        ids = ", ".join(memory.memory_id for memory in found)
        raise UsageError(f"{name!r} names several memories, of other projects or times: name one by its id ({ids})")
    return found[0]


# for programs -------------------------------------------------------------------------------------------------


def memory_json(memory: Memory) -> dict[str, Any]:
    """A memory for programs."""
    found = {name: value for name, value in asdict(memory).items() if name != "order"}
    return {**found, "sources": [span._asdict() for span in memory.sources], "current": memory.is_current}


def source_json(home: Home | Believed, sources: Iterable[tuple[Span, str | None]]) -> list[dict[str, Any]]:
    """Sources for programs; what cannot be found any more has no turn."""
    return [
        {**span._asdict(), "turn_id": turn, "text": home.preview(turn) if turn else None, "resolved": turn is not None}
        for span, turn in sources
    ]


# for people ---------------------------------------------------------------------------------------------------


def marks(memory: Memory) -> str:
    """What is special about a memory, in words."""
    ended = memory.ended_at is not None and memory.superseded_by is None
    found = (
        ("pinned", memory.pinned), ("retired", memory.retired), ("superseded", memory.superseded_by is not None),
        (f"until {memory.ended_at:%Y-%m-%d}" if memory.ended_at else "", ended),
    )  # fmt: skip
    return ", ".join(name for name, holds in found if holds)


def line(memory: Memory, n_chars: int = _LINE_CHARS) -> Text:
    """A memory on two lines: its words with marks, then path, date, trust and id."""
    shown = Text(text.one_line(memory.text, n_chars), style="" if memory.is_current else "dim")
    if found := marks(memory):
        shown.append(f"  [{found}]", style="yellow")
    whose = f"shared by {memory.shared_by}" if memory.shared_by else memory.trust
    place = f"\n    {memory.path}  {day(memory.stated_at)}  {whose}  {memory.memory_id}"
    return shown.append(text.printable(place), style="dim")


def source_line(source: dict[str, Any]) -> str:
    """A source on one line; one that leads nowhere says so."""
    where = f"run {source['run_id'][:14]} bytes {source['from_offset']}-{source['to_offset']}"
    if not source["resolved"]:
        return f"UNRESOLVED  {where}: no turn stands there in this home"
    return f"{source['turn_id']}  {source['text']}"


def print_memory(shell: Shell, home: Home | Believed, memory: Memory) -> None:
    """Everything about a memory, for people."""
    shell.out.print(Text(text.printable(memory.text), style="bold"))
    for name, value in _details(home, memory):
        if value:
            shell.out.print(Text(f"  {name:<12}", style="dim") + Text(text.printable(value)))


def _details(home: Home | Believed, memory: Memory) -> Iterable[tuple[str, str]]:
    yield "id", memory.memory_id
    yield "shared by", memory.shared_by
    yield "path", f"{memory.path} ({memory.kind})"
    yield "project", memory.project or "none: it holds everywhere"
    yield "stated", f"{day(memory.stated_at)}, noted {day(memory.recorded_at)}"
    yield "trust", f"{memory.trust} ({memory.how}), confidence {memory.confidence:.2f}"
    yield "valid", _validity(memory)
    yield "marks", marks(memory)
    times = f"{plural(memory.n_injected, 'time')} put beside a message, {plural(memory.n_used, 'time')} used"
    yield "said", f"{plural(memory.n_stated, 'time')}; {times}"
    yield "names", ", ".join(memory.entities)
    for name, others in (("replaced", replaced(home, memory)), ("replaced by", replacing(home, memory))):
        for other in others:
            yield name, f"{other.memory_id}  {day(other.stated_at)}  {text.one_line(other.text, 70)}"
    for name in memory.made_from:
        yield "made from", name
    for source in source_json(home, home.holding(memory.memory_id).sources(memory.memory_id)):
        yield "source", source_line(source)


def _validity(memory: Memory) -> str:
    bounds = (("from", memory.valid_from), ("until", memory.valid_until))
    return ", ".join(f"{name} {day(at)}" for name, at in bounds if at)


def replaced(home: Home | Believed, memory: Memory) -> list[Memory]:
    """What a memory took the place of, oldest first."""
    history = home.holding(memory.memory_id).history(memory.memory_id)
    return [m for m in history if m.superseded_by == memory.memory_id]


def replacing(home: Home | Believed, memory: Memory) -> list[Memory]:
    """What took a memory's place."""
    after = memory.superseded_by
    return [home.holding(after).get(after)] if after else []


def after_one(memory: Memory) -> Actions:
    """What to try next with one memory."""
    return [
        (f"perdure memories history {memory.memory_id}", "see how this came to be believed"),
        (f'perdure memories edit {memory.memory_id} "…"', "correct its words"),
        (f"perdure memories retire {memory.memory_id}", "set it aside; `perdure forget` deletes it for good"),
    ]
