"""The memory tool over a home: the changes of its commands, and where they are stored.

Files are events in the journal under names of their own; `notes.md` is the page of the floor; below
`known` are the memories that no file made. Every change is durable before it is answered. The text of a
file is also stored as a memory, so that recall, search and the owner find it: each file has one current
memory, on a path made of its name, and its earlier texts are the history of that memory. Mirroring twice
changes nothing, so work that a crash left undone is done the next time, and a change that the owner made
to such a memory stays.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from perdure import text
from perdure.access.redact import mask
from perdure.archive import memory_events
from perdure.errors import EditRefused, IndexFault, PerdureError, ToolError, UsageError
from perdure.floor import floor, state
from perdure.floor.memory_files import MemoryFiles
from perdure.floor.state import MemoryToolFile, derive_memory_id
from perdure.home import Home
from perdure.identity import find_project
from perdure.memories.store import MAX_TEXT_BYTES, MemoryDraft
from perdure.surfaces.memory_tool import commands
from perdure.surfaces.memory_tool.commands import ROOT, FileTree, MovePath, PutFile, RemovePath, TreeChange
from perdure.types import Memory

if TYPE_CHECKING:
    from anthropic.lib.tools import BetaAbstractMemoryTool

FILES_FOLDER = "files"
_HASH_CHARS = 8
_MAX_NAME_CHARS = 48  # of a file whose name cannot be a memory's path as it is


def is_file_memory(memory: Memory) -> bool:
    """Return True if a memory was made from a file, or has a path that only files have."""
    return memory.how == memory_events.FILE or is_file_memory_path(memory.path)


def is_file_memory_path(path: str) -> bool:
    """Return True if a memory's path is one that only files have."""
    return path.lower().startswith(f"{FILES_FOLDER}/")


def make_memory_path(file: str) -> str:
    """Return the path of a file's memory. Two files never share one: a name that could be confused gets a hash.

    >>> make_memory_path("work/staging.md"), make_memory_path("guide.xml"), make_memory_path("README.md")
    ('files/work/staging', 'files/guide.xml', 'files/README~b3356305')
    """
    if file == memory_events.fold_path(file) and file.rpartition("/")[2].count(".") == 1:
        with contextlib.suppress(UsageError):
            return memory_events.check_path(f"{FILES_FOLDER}/{file}")
    digest = hashlib.sha256(file.encode()).hexdigest()[:_HASH_CHARS]
    plain_name = "".join(
        char if char.isalnum() or char in "-_." else "-" for char in file.rpartition("/")[2].removesuffix(".md")
    )
    return memory_events.check_path(f"{FILES_FOLDER}/{plain_name[:_MAX_NAME_CHARS]}~{digest}")


def clip_to_memory_text(file: str) -> str:
    """Return the part of a file that a memory can hold: all of it, or its end from the beginning of a line."""
    raw = file.encode()
    if len(raw) <= MAX_TEXT_BYTES:
        return file
    end = raw[-MAX_TEXT_BYTES:].decode(errors="ignore")
    return end.partition("\n")[2] or end


@dataclass(frozen=True, slots=True)
class MirrorPlan:
    """The changes that make the memories say the same as the files."""

    new_paths: Mapping[str, str]  # path of a memory -> its new one
    retired_paths: Sequence[str]  # paths
    new_texts: Sequence[tuple[str, MemoryToolFile]]  # path, and what the file there says


def plan_mirror(files: Mapping[str, MemoryToolFile], current: Sequence[Memory]) -> MirrorPlan:
    """Plan the changes. current: the current memories that files made."""
    files_by_path = {make_memory_path(name): file for name, file in files.items() if text.printable(file.text).strip()}
    by_id = {derive_memory_id(file.event, file.at): path for path, file in files_by_path.items()}
    folded_paths = {memory_events.fold_path(path) for path in files_by_path}
    current_ids = {memory.memory_id for memory in current}
    stray_memories = [m for m in current if memory_events.fold_path(m.path) not in folded_paths]
    return MirrorPlan(
        new_paths={m.path: by_id[m.memory_id] for m in stray_memories if m.memory_id in by_id},
        retired_paths=[m.path for m in stray_memories if m.memory_id not in by_id],
        new_texts=[
            (path, file)
            for path, file in files_by_path.items()
            if derive_memory_id(file.event, file.at) not in current_ids
        ],
    )


def mirror_files(home: Home, files: Mapping[str, MemoryToolFile]) -> None:
    """Make the memories say the same as the files. Raises IndexFault."""
    memories = home.memories
    current = [
        m
        for m in memories.list_memories(prefix=FILES_FOLDER)
        if m.how == memory_events.FILE and m.agent == home.config.agent
    ]
    mirror_plan = plan_mirror(files, current)
    ops = []
    for path, new_path in mirror_plan.new_paths.items():
        ops += [memory_events.build_change_op(m.memory_id, path=new_path) for m in _list_file_memories(home, path)]
    for path in mirror_plan.retired_paths:
        ops += [memory_events.build_change_op(m.memory_id, retired=True) for m in _list_file_memories(home, path)]
    if ops:
        memories.write_event(ops, by="agent")
    memories_by_path = {memory_events.fold_path(m.path): m for m in current}
    drafts = [
        _make_file_draft(path, file, memories_by_path.get(memory_events.fold_path(path)))
        for path, file in mirror_plan.new_texts
    ]
    drafts = [draft for draft in drafts if memories.find_duplicate(draft) is None]
    if drafts:
        memories.keep_all(drafts, by="agent")
        with contextlib.suppress(IndexFault, PerdureError):
            home.upkeep.embed_new()


def _list_file_memories(home: Home, path: str) -> list[Memory]:
    """List every memory that a file made on a path, except the retired ones."""
    memories = home.memories.history(path)
    return [m for m in memories if m.how == memory_events.FILE and m.agent == home.config.agent and not m.retired]


def _make_file_draft(path: str, file: MemoryToolFile, old_memory: Memory | None) -> MemoryDraft:
    return MemoryDraft(
        clip_to_memory_text(file.text),
        path=path,
        trust="agent",
        how=memory_events.FILE,
        stated_at=datetime.fromisoformat(file.at.partition("#")[0]),
        made_from=(old_memory.memory_id,) if old_memory else (),
        memory_id=derive_memory_id(file.event, file.at),
    )


NOTES = "notes.md"
KNOWN = "known"
MAX_KNOWN = 200  # memories that a listing shows, the newest; each can be viewed by its path


@dataclass
class MemoryTool:
    """The memory tool of one home's agent. Use it from the thread that uses the home."""

    home: Home
    cwd: str | None = None  # memories of its project are shown, and made for it; of no project without it
    _is_mirrored: bool = field(default=False, init=False)  # what the files say is among the memories

    def call(self, tool_input: Mapping[str, Any]) -> str:
        """Answer the input of a `tool_use` block named `memory`. Raises ToolError with a message for the model."""
        command = commands.check_input(tool_input)
        try:
            return mask(self._run_view(command) if command["command"] == "view" else self._run_change(command))
        except ToolError:
            raise
        except EditRefused as error:
            raise ToolError(f"{ROOT}/{error.detail}") from error
        except UsageError as error:
            raise ToolError(error.detail) from error
        except PerdureError as error:
            raise ToolError(str(error)) from error

    def result(self, tool_use_id: str, tool_input: Mapping[str, Any]) -> dict[str, Any]:
        """Return the `tool_result` block that answers a `tool_use` block; a refused command is marked as an error."""
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": tool_use_id}
        try:
            return {**block, "content": self.call(tool_input)}
        except ToolError as error:
            return {**block, "content": str(error), "is_error": True}

    def view(self, path: str, view_range: list[int] | None = None) -> str:
        """Show a folder two levels deep, or a file with line numbers."""
        return self.call({"command": "view", "path": path, "view_range": view_range})

    def create(self, path: str, file_text: str) -> str:
        """Create a file."""
        return self.call({"command": "create", "path": path, "file_text": file_text})

    def str_replace(self, path: str, old_str: str, new_str: str) -> str:
        """Replace a text that occurs in a file exactly once."""
        return self.call({"command": "str_replace", "path": path, "old_str": old_str, "new_str": new_str})

    def insert(self, path: str, insert_line: int, insert_text: str) -> str:
        """Insert a text after a line of a file; 0 is before the first line."""
        return self.call(
            {
                "command": "insert",
                "path": path,
                "insert_line": insert_line,
                "insert_text": insert_text,
            }
        )

    def delete(self, path: str) -> str:
        """Delete a file, or a folder with everything in it."""
        return self.call({"command": "delete", "path": path})

    def rename(self, old_path: str, new_path: str) -> str:
        """Move a file or a folder to another path."""
        return self.call({"command": "rename", "old_path": old_path, "new_path": new_path})

    # ----------------------------------------------------------------------------------------------------------

    @property
    def _memory_files(self) -> MemoryFiles:
        return MemoryFiles(self.home.floor)

    def _run_view(self, command: Mapping[str, Any]) -> str:
        path = commands.resolve_path(command["path"])
        tree, n_more = self._load_tree(path)
        message = commands.run_command(tree, command).message
        if _has_other_writers(path) and path in tree.texts:
            self.home.floor.refuse_suspect(tree.texts[path], path)
        return f"{message}\n({n_more} older memories are below {ROOT}/{KNOWN} as well.)" if n_more else message

    def _run_change(self, command: Mapping[str, Any]) -> str:
        paths = [commands.resolve_path(command[name]) for name in ("path", "old_path", "new_path") if name in command]
        with self._memory_files.hold_lock():
            if any(state.is_within(path, NOTES) for path in paths):
                return self._change_notes(command, paths)
            result = commands.run_command(self._load_tree(*paths)[0], command)
            assert result.change is not None
            self._apply_change(result.change)
        return result.message

    def _load_tree(self, *paths: str) -> tuple[FileTree, int]:
        """Load what commands about these paths need; return it with the number of memories that are not listed."""
        file_state = self._memory_files.load_state()
        texts = {path: file.text for path, file in file_state.files.items()}
        folders = set(file_state.folders)
        if "" in paths or NOTES in paths:
            page = self.home.floor.read(NOTES)
            texts |= {NOTES: page} if page else {}
        if not any(not path or state.is_within(path, KNOWN) for path in paths):
            return FileTree(texts, folders), 0
        known_memories = self._load_known_memories()
        for n, (path, memory) in enumerate(known_memories.items()):
            if n < MAX_KNOWN or path in paths:
                state.put_path(texts, folders, path, memory.text)
        is_listed = "" in paths or KNOWN in paths
        return FileTree(texts, folders), max(0, len(known_memories) - MAX_KNOWN) if is_listed else 0

    def _load_known_memories(self) -> dict[str, Memory]:
        """Load the memories that no file made, by path, newest first. On one path, the current project goes before
        no project.

        Memories that a tool or the web stated are left out: here they would look like the agent's own words.
        """
        try:
            memories = self.home.memories.list_memories()
        except IndexFault:  # the files do not depend on it
            return {}
        agent, project = self.home.config.agent, find_project(self.cwd)
        own_memories = [
            memory
            for memory in memories
            if memory.agent == agent
            and memory.trust in ("owner", "agent")
            and memory.project in (None, project)
            and not is_file_memory(memory)
        ]
        memories_by_path = {f"{KNOWN}/{memory.path}.md": memory for memory in own_memories if memory.project is None}
        memories_by_path |= {
            f"{KNOWN}/{memory.path}.md": memory for memory in own_memories if memory.project is not None
        }
        return dict(sorted(memories_by_path.items(), key=lambda item: item[1].stated_at, reverse=True))

    def _change_notes(self, command: Mapping[str, Any], paths: list[str]) -> str:
        """Edit the page of notes, starting from its text at that moment."""
        if command["command"] not in ("create", "str_replace", "insert") or paths != [NOTES]:
            raise ToolError(f"{ROOT}/{NOTES} is the page of notes that every session begins with: it cannot be moved")
        message = ""

        def make(old_text: str) -> floor.PageChange:
            nonlocal message
            result = commands.run_command(FileTree({NOTES: old_text} if old_text else {}, ()), command)
            assert isinstance(result.change, PutFile)
            message = result.message
            return floor.PageChange(result.change.text, "agent")

        self.home.floor.rework(NOTES, make)
        return message

    def _apply_change(self, change: TreeChange) -> None:
        """Store a change where it belongs. Raises UsageError if the change is not allowed."""
        paths = [change.path, change.new_path] if isinstance(change, MovePath) else [change.path]
        if any(state.is_within(path, KNOWN) for path in paths):
            self._change_memory(change)
        else:
            self._change_file(change)

    def _change_memory(self, change: TreeChange) -> None:
        known_memories = self._load_known_memories()
        if isinstance(change, RemovePath) and change.path in known_memories:
            self.home.memories.change(self._list_path_ids(known_memories[change.path]), by="agent", retired=True)
        elif isinstance(change, PutFile) and change.path.endswith(".md"):
            self._remember(change, known_memories.get(change.path))
        else:
            raise ToolError(
                f"Below {ROOT}/{KNOWN} are memories, each a file that ends in .md: they are created, edited and "
                "deleted one by one, and not moved"
            )

    def _list_path_ids(self, memory: Memory) -> list[str]:
        """Return the ids of a memory and its earlier versions: otherwise the last of those would be current again."""
        memories, scope = self.home.memories, (memory.agent, memory.project)
        path_memories = [*memories.history(memory.path), *memories.history(memory.memory_id)]
        memory_ids = dict.fromkeys(
            m.memory_id for m in path_memories if not m.retired and (m.agent, m.project) == scope
        )
        return list(memory_ids)

    def _remember(self, change: PutFile, old_memory: Memory | None) -> None:
        self._memory_files.check_text(change.path, change.text)
        path = change.path.removeprefix(f"{KNOWN}/")
        if is_file_memory_path(path):
            raise ToolError(
                f"{ROOT}/{KNOWN}/{FILES_FOLDER} is where files that are kept elsewhere become memories: "
                f"create {ROOT}/{path.partition('/')[2]} instead, which is remembered as well"
            )
        project = None if memory_events.is_unscoped(path, "fact") else find_project(self.cwd)
        draft = MemoryDraft(change.text, path=path, project=project, trust="agent")
        if old_memory is not None:
            draft = MemoryDraft(
                change.text,
                old_memory.kind,
                old_memory.path,
                old_memory.project,
                trust="agent",
                how="edited",
                pinned=old_memory.pinned,
                valid_from=old_memory.valid_from,
                valid_until=old_memory.valid_until,
            )
        self.home.memories.keep(draft, by="agent")
        with contextlib.suppress(PerdureError):  # what is kept is kept; its vector follows with the next search
            self.home.upkeep.embed_new()

    def _change_file(self, change: TreeChange) -> None:
        if not self._is_mirrored:
            self._mirror()  # before a rename, so that memories move along
        if isinstance(change, PutFile):
            self._memory_files.write(change.path, change.text)
        elif isinstance(change, RemovePath):
            self._memory_files.remove(change.path)
        else:
            self._memory_files.move(change.path, change.new_path)
        self._mirror()

    def _mirror(self) -> None:
        """Make the memories say the same as the files. A failure is left to the next change: the files are stored."""
        self._is_mirrored = False
        with contextlib.suppress(PerdureError):
            mirror_files(self.home, self._memory_files.load_state().files)
            self._is_mirrored = True


def anthropic_tool(home: Home, *, cwd: str | None = None) -> BetaAbstractMemoryTool:
    """Return the memory tool as a tool of Anthropic's SDK, for its `tools=[…]` and its tool runner."""
    from anthropic.lib.tools import BetaAbstractMemoryTool
    from anthropic.lib.tools import ToolError as SdkError

    tool = MemoryTool(home, cwd)

    class _Tool(BetaAbstractMemoryTool):
        def call(self, input: object) -> str:
            try:
                return tool.call(input if isinstance(input, Mapping) else {})
            except ToolError as error:
                raise SdkError(str(error)) from error

        def _call_typed(self, command: Any) -> str:
            return self.call(command.model_dump())

        view = create = str_replace = insert = delete = rename = _call_typed

    return _Tool()


def _has_other_writers(path: str) -> bool:
    """Return True if others than the tool may have written the file at this path."""
    return path == NOTES or state.is_within(path, KNOWN)
