"""What the memory tool's files say, as memories: so that recall, search and the owner find it.

Each file has one current memory, on a path made of its name; what it said before is the history of that. Asked again it
changes nothing, so what a crash left undone is done the next time, and what the owner did to such a memory stays.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from perdure import text as words
from perdure.errors import IndexFault, PerdureError, UsageError
from perdure.floor.events import memory_of
from perdure.floor.state import File
from perdure.home import Home
from perdure.memories import events, paths
from perdure.mind.memories import MAX_TEXT_BYTES, Draft
from perdure.types import Memory

FOLDER = "files"
_HASH_CHARS = 8
_MAX_NAME_CHARS = 48  # of a file whose name cannot be a memory's path as it is


def is_of_file(memory: Memory) -> bool:
    """Whether a memory has its place among those that files made."""
    return memory.how == events.FILE or is_place_of_files(memory.path)


def is_place_of_files(path: str) -> bool:
    """Whether a memory's path is one that only files have."""
    return path.lower().startswith(f"{FOLDER}/")


def path_of(file: str) -> str:
    """The path of a file's memory. Two files never have the same: what could be mistaken gets a hash.

    >>> path_of("work/staging.md"), path_of("guide.xml"), path_of("README.md")
    ('files/work/staging', 'files/guide.xml', 'files/README~b3356305')
    """
    if file == paths.folded(file) and file.rpartition("/")[2].count(".") == 1:
        with contextlib.suppress(UsageError):
            return paths.checked(f"{FOLDER}/{file}")
    digest = hashlib.sha256(file.encode()).hexdigest()[:_HASH_CHARS]
    plain = "".join(
        char if char.isalnum() or char in "-_." else "-" for char in file.rpartition("/")[2].removesuffix(".md")
    )
    return paths.checked(f"{FOLDER}/{plain[:_MAX_NAME_CHARS]}~{digest}")


def text_of(file: str) -> str:
    """What a file says, as far as a memory holds it: its end, where it is longer, from the beginning of a line."""
    raw = file.encode()
    if len(raw) <= MAX_TEXT_BYTES:
        return file
    end = raw[-MAX_TEXT_BYTES:].decode(errors="ignore")
    return end.partition("\n")[2] or end


@dataclass(frozen=True, slots=True)
class Todo:
    """What is to be done so that the memories say what the files say."""

    moved: Mapping[str, str]  # path of a memory -> its new one
    gone: Sequence[str]  # paths
    said: Sequence[tuple[str, File]]  # path, and what the file there says


def todo(files: Mapping[str, File], current: Sequence[Memory]) -> Todo:
    """What is to be done. current: the memories that files made and that are believed."""
    wanted = {path_of(name): file for name, file in files.items() if words.printable(file.text).strip()}
    by_id = {memory_of(file.event, file.at): path for path, file in wanted.items()}
    folded = {paths.folded(path) for path in wanted}
    known = {memory.memory_id for memory in current}
    stray = [m for m in current if paths.folded(m.path) not in folded]
    return Todo(
        moved={m.path: by_id[m.memory_id] for m in stray if m.memory_id in by_id},
        gone=[m.path for m in stray if m.memory_id not in by_id],
        said=[(path, file) for path, file in wanted.items() if memory_of(file.event, file.at) not in known],
    )


def settle(home: Home, files: Mapping[str, File]) -> None:
    """Let the memories say what the files say. Raises IndexFault."""
    memories = home.memories
    current = [m for m in memories.listed(prefix=FOLDER) if m.how == events.FILE and m.agent == home.config.agent]
    wanted = todo(files, current)
    ops = []
    for path, to in wanted.moved.items():
        ops += [events.change(m.memory_id, path=to) for m in _made(home, path)]
    for path in wanted.gone:
        ops += [events.change(m.memory_id, retired=True) for m in _made(home, path)]
    if ops:
        memories.note(ops, by="agent")
    before = {paths.folded(m.path): m for m in current}
    drafts = [_draft(path, file, before.get(paths.folded(path))) for path, file in wanted.said]
    drafts = [draft for draft in drafts if memories.said_already(draft) is None]
    if drafts:
        memories.keep_all(drafts, by="agent")
        with contextlib.suppress(IndexFault, PerdureError):
            home.embed_new()


def _made(home: Home, path: str) -> list[Memory]:
    """Every memory that a file made on a path, whatever became of it."""
    found = home.memories.history(path)
    return [m for m in found if m.how == events.FILE and m.agent == home.config.agent and not m.retired]


def _draft(path: str, file: File, before: Memory | None) -> Draft:
    return Draft(
        text_of(file.text), path=path, trust="agent", how=events.FILE,
        stated_at=datetime.fromisoformat(file.at.partition("#")[0]),
        made_from=(before.memory_id,) if before else (), memory_id=memory_of(file.event, file.at),
    )  # fmt: skip
