"""The folders that an agent may touch: its project, those that its owner allows, and never the home.

A path is resolved first, symlinks too, and then opened step by step from its folder without following any symlink, so a
symlink that is put there in between is refused, and no path leads out. Only plain files are opened: a FIFO or a device
would block or do worse.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from perdure.environ import read_variable
from perdure.errors import ToolError

MAX_EDIT_BYTES = 10_000_000  # of a file that is read whole: to be edited, or as an image
_NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_PRIVATE_PARTS = {".git"}  # what stands in it runs as code, later and unseen; in any letter case, as some disks read


def _list_path() -> list[str]:
    return (read_variable("PATH") or os.defpath).split(os.pathsep)


Zone = Literal["project", "read-only", "home", "private", "outside"]


def _is_below(path: Path, folder: Path) -> bool:
    """Return True if a folder is, by another name (a bind mount, other letter case), above a path."""
    try:
        status = folder.stat()
    except OSError:
        return False
    for ancestor in (path, *path.parents):
        with suppress(OSError):
            if os.path.samestat(status, ancestor.stat()):
                return True
    return False


@dataclass(frozen=True)
class ProjectFolders:
    """Where an agent works. All paths are absolute and resolved."""

    root: Path  # the project: its repository, or the folder
    home: Path  # of Perdure: neither read nor written through a file tool
    start: Path  # where relative paths start and commands run: the project, or a folder in it
    more: tuple[Path, ...] = ()  # folders in which it may read and write, too
    readable: tuple[Path, ...] = ()  # folders in which it may only read: full outputs
    opened: list[Path] = field(default_factory=list, compare=False)  # and those of skills that were read in the session

    def resolve(self, path: str) -> Path:
        """Return the absolute path that a model means, symlinks resolved; it need not exist. Raises ToolError."""
        if "\0" in path or not path:
            raise ToolError(f"{path!r} is no path")
        try:
            return Path(os.path.realpath(self.start / Path(path).expanduser()))
        except (OSError, RuntimeError, ValueError) as error:
            raise ToolError(f"{path}: {error}") from error

    def find_zone(self, path: Path) -> Zone:
        """Return where a resolved path lies. The home wins over a project that holds it."""
        if path.is_relative_to(self.home) or _is_below(path, self.home):
            return "home"
        for folder in (self.root, *self.more):
            if path.is_relative_to(folder):
                parts = {
                    part.casefold() for part in path.relative_to(folder).parts
                }  # a file system may not tell them apart
                return "private" if _PRIVATE_PARTS & parts else "project"
        return (
            "read-only" if any(path.is_relative_to(folder) for folder in (*self.readable, *self.opened)) else "outside"
        )

    def check(self, path: str, *, is_write: bool = False) -> Path:
        """Return the resolved path if it may be read (or written). Raises ToolError, which says what to do."""
        resolved = self.resolve(path)
        zone = self.find_zone(resolved)
        if zone == "home":
            raise ToolError(
                f"{path} lies in the home of Perdure, which no tool reads or writes; use recall and remember"
            )
        if zone == "outside":
            raise ToolError(
                f"{path} lies outside the project {self.root}. Use a path inside it; "
                "the owner can allow more `folders` in agent.yaml"
            )
        if zone == "read-only" and is_write:
            raise ToolError(f"{path} can only be read. Write inside the project {self.root}")
        return resolved

    def show(self, path: Path) -> str:
        """Return a path as a model reads it: relative to where commands run, where it can be."""
        return str(path.relative_to(self.start)) if path.is_relative_to(self.start) else str(path)

    def find_program(self, name: str) -> str | None:
        """Return the path of a program that this process may run unasked: none that lies in the project."""
        return shutil.which(name, path=os.pathsep.join(e for e in _list_path() if not self._is_own(e)))

    def has_program(self, name: str) -> bool:
        """Return True if a folder of PATH in the project (an activated environment) has a program of this name."""
        entries = (str(self.start / entry) for entry in _list_path() if self._is_own(entry))
        return any(os.access(Path(entry, name), os.X_OK) for entry in entries)

    def _is_own(self, entry: str) -> bool:
        """Return True if a folder of PATH lies where the agent may write, or depends on where a command runs."""
        return not Path(entry).is_absolute() or self.find_zone(Path(os.path.realpath(entry))) not in ("outside", "home")

    def _find_base(self, path: Path) -> Path:
        return next(
            folder for folder in (self.root, *self.more, *self.readable, *self.opened) if path.is_relative_to(folder)
        )

    @contextmanager
    def open_parent(self, path: Path, *, create: bool = False) -> Iterator[int]:
        """Open the folder of a checked path, without following a symlink; make the missing folders if asked.

        Yields its descriptor. Raises ToolError.
        """
        base = self._find_base(path)
        folder = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in path.relative_to(base).parts[:-1]:
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(part, 0o777, dir_fd=folder)
                inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | _NO_LINK, dir_fd=folder)
                os.close(folder)
                folder = inner
            yield folder
        except OSError as error:
            raise self._explain(error, path) from error
        finally:
            os.close(folder)

    def open_file(self, path: Path) -> int:
        """Open a checked path for reading, and return its descriptor. Raises ToolError for what is no plain file."""
        if path == self._find_base(path):
            raise ToolError(f"{self.show(path)} is a folder: glob lists what is in it")
        with self.open_parent(path) as folder:
            self._check_plain(os.stat(path.name, dir_fd=folder, follow_symlinks=False), path)
            descriptor = os.open(path.name, os.O_RDONLY | _NO_LINK, dir_fd=folder)
            try:
                self._check_plain(os.fstat(descriptor), path)
            except ToolError:
                os.close(descriptor)
                raise
            return descriptor

    def read_whole(self, path: Path) -> bytes:
        """Return the bytes of a checked path. Raises ToolError for a file of more than MAX_EDIT_BYTES."""
        with os.fdopen(self.open_file(path), "rb") as file:
            data = file.read(MAX_EDIT_BYTES + 1)
        if len(data) > MAX_EDIT_BYTES:
            raise ToolError(f"{self.show(path)} has more than {MAX_EDIT_BYTES:,} bytes; use shell for such a file")
        return data

    def replace(self, path: Path, data: bytes) -> bool:
        """Give a checked path new bytes in one step; its mode stays. Return True if it is new. Raises ToolError."""
        if path == self._find_base(path):
            raise ToolError(f"{self.show(path)} is a folder")
        with self.open_parent(path, create=True) as folder:
            mode = None
            with suppress(FileNotFoundError):
                status = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
                self._check_plain(status, path)
                mode = stat.S_IMODE(status.st_mode)
            temporary = f".{path.name[:100]}.{os.urandom(4).hex()}.tmp"
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                    if mode is not None:
                        os.fchmod(file.fileno(), mode)
                    file.flush()
                    os.fsync(file.fileno())
                os.rename(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise
            return mode is None

    def _check_plain(self, status: os.stat_result, path: Path) -> None:
        if stat.S_ISREG(status.st_mode):
            return
        if stat.S_ISDIR(status.st_mode):
            raise ToolError(f"{self.show(path)} is a folder: glob lists what is in it")
        kind = "a symlink that changed just now" if stat.S_ISLNK(status.st_mode) else "a pipe, socket or device"
        raise ToolError(f"{self.show(path)} is {kind}, no plain file")

    def _explain(self, error: OSError, path: Path) -> ToolError:
        shown = self.show(path)
        if isinstance(error, FileNotFoundError):
            return ToolError(f"{shown} does not exist. {self._suggest(path)}")
        if isinstance(error, NotADirectoryError):
            return ToolError(f"{shown}: a part of its path is no folder, or a symlink that changed just now")
        return ToolError(f"{shown}: {error.strerror or error}")

    def _suggest(self, path: Path) -> str:
        """Say which files of the same folder have a similar name."""
        import difflib  # only for a mistake

        try:
            names = sorted(entry.name for entry in path.parent.iterdir())[:5000]
        except OSError:
            return "glob finds files by name."
        similar = difflib.get_close_matches(path.name, names, n=3)
        return (
            f"Similar: {', '.join(self.show(path.parent / name) for name in similar)}"
            if similar
            else ("glob finds files by name.")
        )


def find_root(start: Path) -> Path:
    """Return the folder of the repository around a folder, or the folder itself. A worktree is one of its own."""
    return next((folder for folder in (start, *start.parents) if (folder / ".git").exists()), start)
