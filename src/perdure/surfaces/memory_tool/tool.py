"""The memory tool over a home: what its commands change, and where that is kept.

Files are events in the journal under names of their own; `notes.md` is the page of the floor; below `known` are the
memories that no file made. Every change is durable before it is answered, and what a file says is a memory as well, so
that recall finds it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perdure.access.redact import mask
from perdure.errors import EditRefused, IndexFault, PerdureError, ToolError, UsageError
from perdure.floor import floor as floors
from perdure.floor import tree
from perdure.floor.files import Files
from perdure.home import Home
from perdure.identity import project_of
from perdure.memories import paths
from perdure.mind.memories import Draft
from perdure.surfaces.memory_tool import commands, mirror
from perdure.surfaces.memory_tool.commands import ROOT, Change, Move, Put, Remove, Tree
from perdure.types import Memory

if TYPE_CHECKING:
    from anthropic.lib.tools import BetaAbstractMemoryTool

NOTES = "notes.md"
KNOWN = "known"
MAX_KNOWN = 200  # memories that a listing shows, the newest; each can be viewed by its path


@dataclass
class MemoryTool:
    """The memory tool of one home's agent. Use it from the thread that uses the home."""

    home: Home
    cwd: str | None = None  # memories of its project are shown, and made for it; of no project without it
    _settled: bool = field(default=False, init=False)  # what the files say is among the memories

    def call(self, given: Mapping[str, Any]) -> str:
        """The answer to the input of a `tool_use` block named `memory`. Raises ToolError in the words for its model."""
        command = commands.checked(given)
        try:
            return mask(self._view(command) if command["command"] == "view" else self._change(command))
        except ToolError:
            raise
        except EditRefused as error:
            raise ToolError(f"{ROOT}/{error.detail}") from error
        except UsageError as error:
            raise ToolError(error.detail) from error
        except PerdureError as error:
            raise ToolError(str(error)) from error

    def result(self, tool_use_id: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """The `tool_result` block that answers a `tool_use` block; a refused command is marked as an error."""
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": tool_use_id}
        try:
            return {**block, "content": self.call(given)}
        except ToolError as error:
            return {**block, "content": str(error), "is_error": True}

    def view(self, path: str, view_range: list[int] | None = None) -> str:
        """A folder two levels deep, or a file with line numbers."""
        return self.call({"command": "view", "path": path, "view_range": view_range})

    def create(self, path: str, file_text: str) -> str:
        """A new file."""
        return self.call({"command": "create", "path": path, "file_text": file_text})

    def str_replace(self, path: str, old_str: str, new_str: str) -> str:
        """Other words for those that stand in a file exactly once."""
        return self.call({"command": "str_replace", "path": path, "old_str": old_str, "new_str": new_str})

    def insert(self, path: str, insert_line: int, insert_text: str) -> str:
        """A text behind a line of a file; 0 is before the first."""
        return self.call({
            "command": "insert", "path": path, "insert_line": insert_line, "insert_text": insert_text,
        })  # fmt: skip

    def delete(self, path: str) -> str:
        """A file goes, or a folder with all that is in it."""
        return self.call({"command": "delete", "path": path})

    def rename(self, old_path: str, new_path: str) -> str:
        """A file or a folder gets another path."""
        return self.call({"command": "rename", "old_path": old_path, "new_path": new_path})

    # ----------------------------------------------------------------------------------------------------------

    @property
    def _files(self) -> Files:
        return Files(self.home.floor)

    def _view(self, command: Mapping[str, Any]) -> str:
        at = commands.place(command["path"])
        known, n_more = self._tree(at)
        said = commands.done(known, command).said
        if _is_of_others(at) and at in known.texts:
            self.home.floor.refuse_suspect(known.texts[at], at)
        return f"{said}\n({n_more} older memories are below {ROOT}/{KNOWN} as well.)" if n_more else said

    def _change(self, command: Mapping[str, Any]) -> str:
        places = [commands.place(command[name]) for name in ("path", "old_path", "new_path") if name in command]
        with self._files.held():
            if any(tree.is_within(place, NOTES) for place in places):
                return self._change_notes(command, places)
            done = commands.done(self._tree(*places)[0], command)
            assert done.change is not None
            self._act(done.change)
        return done.said

    def _tree(self, *paths: str) -> tuple[Tree, int]:
        """What there is, as far as commands about these paths need it, and how many memories more there are."""
        known = self._files.known()
        texts = {path: file.text for path, file in known.files.items()}
        folders = set(known.folders)
        if "" in paths or NOTES in paths:
            page = self.home.floor.read(NOTES)
            texts |= {NOTES: page} if page else {}
        if not any(not path or tree.is_within(path, KNOWN) for path in paths):
            return Tree(texts, folders), 0
        every = self._known()
        for n, (path, memory) in enumerate(every.items()):
            if n < MAX_KNOWN or path in paths:
                tree.put(texts, folders, path, memory.text)
        is_listed = "" in paths or KNOWN in paths
        return Tree(texts, folders), max(0, len(every) - MAX_KNOWN) if is_listed else 0

    def _known(self) -> dict[str, Memory]:
        """The memories that no file made, by path, the newest first: those of the project at hand before those of none.

        What a tool or the web said is left out: here it would look like the agent's own words.
        """
        try:
            every = self.home.memories.listed()
        except IndexFault:  # the files do not depend on it
            return {}
        agent, project = self.home.config.agent, project_of(self.cwd)
        here = [
            memory
            for memory in every
            if memory.agent == agent and memory.trust in ("owner", "agent")
            and memory.project in (None, project) and not mirror.is_of_file(memory)
        ]  # fmt: skip
        found = {f"{KNOWN}/{memory.path}.md": memory for memory in here if memory.project is None}
        found |= {f"{KNOWN}/{memory.path}.md": memory for memory in here if memory.project is not None}
        return dict(sorted(found.items(), key=lambda item: item[1].stated_at, reverse=True))

    def _change_notes(self, command: Mapping[str, Any], places: list[str]) -> str:
        """Edit the page of notes by what it says at that moment."""
        if command["command"] not in ("create", "str_replace", "insert") or places != [NOTES]:
            raise ToolError(f"{ROOT}/{NOTES} is the page of notes that every session begins with: it stays where it is")
        said = ""

        def make(old: str) -> floors.Change:
            nonlocal said
            done = commands.done(Tree({NOTES: old} if old else {}, ()), command)
            assert isinstance(done.change, Put)
            said = done.said
            return floors.Change(done.change.text, "agent")

        self.home.floor.rework(NOTES, make)
        return said

    def _act(self, change: Change) -> None:
        """Keep a change where it belongs. Raises UsageError for one that may not be made."""
        places = [change.path, change.to] if isinstance(change, Move) else [change.path]
        if any(tree.is_within(path, KNOWN) for path in places):
            self._change_memory(change)
        else:
            self._change_file(change)

    def _change_memory(self, change: Change) -> None:
        known = self._known()
        if isinstance(change, Remove) and change.path in known:
            self.home.memories.change(self._all_of(known[change.path]), by="agent", retired=True)
        elif isinstance(change, Put) and change.path.endswith(".md"):
            self._remember(change, known.get(change.path))
        else:
            raise ToolError(
                f"Below {ROOT}/{KNOWN} are memories, each a file that ends in .md: they are created, edited and "
                "deleted one by one, and not moved"
            )

    def _all_of(self, memory: Memory) -> list[str]:
        """The ids of a memory and of what was believed on its path before: without it, that would count again."""
        memories, place = self.home.memories, (memory.agent, memory.project)
        found = [*memories.history(memory.path), *memories.history(memory.memory_id)]
        every = dict.fromkeys(m.memory_id for m in found if not m.retired and (m.agent, m.project) == place)
        return list(every)

    def _remember(self, change: Put, old: Memory | None) -> None:
        self._files.check(change.path, change.text)
        path = change.path.removeprefix(f"{KNOWN}/")
        if mirror.is_place_of_files(path):
            raise ToolError(
                f"{ROOT}/{KNOWN}/{mirror.FOLDER} is where files that are kept elsewhere become memories: "
                f"create {ROOT}/{path.partition('/')[2]} instead, which is remembered as well"
            )
        draft = Draft(change.text, path=path, project=self._project_for(path), trust="agent")
        if old is not None:
            draft = Draft(
                change.text, old.kind, old.path, old.project, trust="agent", how="edited", pinned=old.pinned,
                valid_from=old.valid_from, valid_until=old.valid_until,
            )  # fmt: skip
        self.home.memories.keep(draft, by="agent")
        with contextlib.suppress(PerdureError):  # what is kept is kept; its vector follows with the next search
            self.home.embed_new()

    def _project_for(self, path: str) -> str | None:
        return None if paths.is_everywhere(path, "fact") else project_of(self.cwd)

    def _change_file(self, change: Change) -> None:
        if not self._settled:
            self._settle()  # before a rename, so that memories move along
        if isinstance(change, Put):
            self._files.write(change.path, change.text)
        elif isinstance(change, Remove):
            self._files.remove(change.path)
        else:
            self._files.move(change.path, change.to)
        self._settle()

    def _settle(self) -> None:
        """Let the memories say what the files say. What fails is left to the next change: the files are kept."""
        self._settled = False
        with contextlib.suppress(PerdureError):
            mirror.settle(self.home, self._files.known().files)
            self._settled = True


def anthropic_tool(home: Home, *, cwd: str | None = None) -> BetaAbstractMemoryTool:
    """The same as a tool of Anthropic's SDK, for its `tools=[…]` and its tool runner."""
    from anthropic.lib.tools import BetaAbstractMemoryTool
    from anthropic.lib.tools import ToolError as SdkError

    kept = MemoryTool(home, cwd)

    class _Tool(BetaAbstractMemoryTool):
        def call(self, input: object) -> str:
            try:
                return kept.call(input if isinstance(input, Mapping) else {})
            except ToolError as error:
                raise SdkError(str(error)) from error

        def _typed(self, command: Any) -> str:
            return self.call(command.model_dump())

        view = create = str_replace = insert = delete = rename = _typed

    return _Tool()


def _is_of_others(path: str) -> bool:
    """Whether others than the tool may have written what stands there."""
    return path == NOTES or tree.is_within(path, KNOWN)
