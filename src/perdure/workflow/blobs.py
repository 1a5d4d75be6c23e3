"""Blobs of a workflow: whole files by name, and logs of lines. In a folder, or in an S3-compatible store.

Both are safe under concurrent writers. In a folder a log is one file, appended under a lock. An object store cannot
append, so there each entry is an object of its own, named by its time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from perdure import disk
from perdure.errors import PackageMissing, UsageError
from perdure.objects import get_object, put_new_object
from perdure.workflow.tier_queue import map_client_errors

_NAME = "the object store"  # in messages
_BLOCK_BYTES = 1 << 16
_N_READERS = 8  # objects that are read side by side
_N_KEPT = 40  # entries that need not be read again
_SPANS_S = tuple(10**n for n in range(7))  # before now: a second to eleven days


class Blobs(Protocol):
    """A place for blobs. Names are paths with slashes, below the place's own root."""

    def append(self, log: str, entry: bytes, *, entry_name: str, at_ns: int) -> None:
        """Add an entry to a log, durably. entry_name: the same entry under the same name and time is there once."""

    def read_newest(self, log: str, k: int) -> list[bytes]:
        """Return the newest entries of a log, oldest first, and read hardly more than those."""

    def put(self, name: str, data: bytes) -> None:
        """Write a whole blob, in place of an older one."""

    def put_new(self, name: str, data: bytes) -> bool:
        """Write a whole blob, unless there is one. Return False if there is."""

    def get(self, name: str) -> bytes | None:
        """Return a whole blob, or None."""

    def list_names(self, folder: str) -> list[str]:
        """Return the names of the blobs right in a folder, sorted."""


class FolderBlobs:
    """Blobs as files of a folder of this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def append(self, log: str, entry: bytes, *, entry_name: str, at_ns: int) -> None:  # noqa: ARG002 - the order of the file is enough
        """Add a line to a file, under its lock. A line that a crash cut off stays a line of its own."""
        path = self._make_path(f"{log}.jsonl")
        with disk.lock_file(path) as descriptor:
            size = os.fstat(descriptor).st_size
            is_torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            disk.append_line(path, b"\n" + entry if is_torn else entry)

    def read_newest(self, log: str, k: int) -> list[bytes]:
        """Read a file from its end."""
        blocks: list[bytes] = []  # the last one first
        n_lines = 0
        try:
            with (self._root / f"{log}.jsonl").open("rb") as file:
                offset = file.seek(0, os.SEEK_END)
                while offset and n_lines <= k:
                    start = max(0, offset - _BLOCK_BYTES)
                    file.seek(start)
                    blocks.append(file.read(offset - start))
                    n_lines += blocks[-1].count(b"\n")
                    offset = start
        except FileNotFoundError:
            return []
        lines = [line for line in b"".join(reversed(blocks)).split(b"\n") if line]
        return lines[-k:] if k > 0 else []

    def put(self, name: str, data: bytes) -> None:
        """Replace a file in one step."""
        disk.replace_file(self._make_path(name), data)

    def put_new(self, name: str, data: bytes) -> bool:
        """Write a file whole, and give it its name only if that is free."""
        return disk.create_file(self._make_path(name), data)

    def get(self, name: str) -> bytes | None:
        """Read a file."""
        try:
            return (self._root / name).read_bytes()
        except FileNotFoundError:
            return None

    def list_names(self, folder: str) -> list[str]:
        """List a folder."""
        paths = sorted((self._root / folder).glob("[!.]*"))
        return [f"{folder}/{path.name}" for path in paths]

    def _make_path(self, name: str) -> Path:
        path = self._root / name
        disk.make_folder(path.parent)
        return path


class ObjectBlobs:
    """Blobs as objects of an S3-compatible store, through obstore."""

    def __init__(self, store: Any) -> None:
        """store: one of obstore.store. Raises PackageMissing; UsageError for a store that lists in no order."""
        try:
            import obstore
        except ModuleNotFoundError as error:
            raise PackageMissing("pip install 'perdure[workflow]'") from error
        if type(store).__name__ == "LocalStore":
            raise UsageError("blob_storage: give the path of the folder instead of a LocalStore")
        self._obstore, self._store = obstore, store
        self._entries: dict[str, bytes] = {}  # the last ones that were written or read; an entry never changes

    def append(self, log: str, entry: bytes, *, entry_name: str, at_ns: int) -> None:
        """Put an object for the entry; to put it again changes nothing."""
        name = f"{log}/{at_ns:019d}-{entry_name}.json"
        self.put(name, entry)
        self._keep(name, entry)

    def read_newest(self, log: str, k: int) -> list[bytes]:
        """Read the objects that are listed last, those that are not known side by side."""
        names = self._list_newest(log, k) if k > 0 else []
        missing = [name for name in names if name not in self._entries]
        entries: dict[str, bytes | None] = {name: self._entries[name] for name in names if name in self._entries}
        if missing:
            with ThreadPoolExecutor(min(len(missing), _N_READERS)) as pool:
                entries |= zip(missing, pool.map(self.get, missing), strict=True)
        for name in missing:
            self._keep(name, entries[name])
        return [entry for name in names if (entry := entries[name]) is not None]

    def _list_newest(self, log: str, k: int) -> list[str]:
        """Return the newest names, oldest first.

        A store lists at most a thousand names at once, which takes it long. So it lists from the oldest known name of
        so many; or else those of the last second, and of ever longer times, until they are enough.
        """
        known_names = sorted(name for name in self._entries if name.startswith(f"{log}/"))
        starts = [known_names[-k - 1]] if len(known_names) > k else []
        starts += [f"{log}/{time.time_ns() - span_s * 10**9:019d}" for span_s in _SPANS_S]
        names: list[str] = []
        for start in (*starts, None):
            with map_client_errors(_NAME):
                pages = self._obstore.list(self._store, f"{log}/", offset=start)
                names = [meta["path"] for page in pages for meta in page]
            if len(names) >= k:
                break
        return names[-k:]

    def _keep(self, name: str, entry: bytes | None) -> None:
        if entry is not None:
            self._entries[name] = entry
            if len(self._entries) > _N_KEPT:
                del self._entries[next(iter(self._entries))]

    def put(self, name: str, data: bytes) -> None:
        """Put an object."""
        with map_client_errors(_NAME):
            self._obstore.put(self._store, name, data, use_multipart=False)

    def put_new(self, name: str, data: bytes) -> bool:
        """Put an object on the condition that there is none."""
        with map_client_errors(_NAME):
            return put_new_object(self._store, name, data)

    def get(self, name: str) -> bytes | None:
        """Get an object."""
        with map_client_errors(_NAME):
            return get_object(self._store, name)

    def list_names(self, folder: str) -> list[str]:
        """List the objects with a prefix."""
        with map_client_errors(_NAME):
            return sorted(meta["path"] for page in self._obstore.list(self._store, f"{folder}/") for meta in page)


def open_blobs(blob_storage: Any) -> Blobs:
    """Return the blobs of a place: a folder, an address (s3://bucket/folder), a store of obstore, or an own `Blobs`.

    Raises UsageError for anything else, PackageMissing.
    """
    if isinstance(blob_storage, str | Path):
        if "://" in str(blob_storage):
            return ObjectBlobs(open_address(str(blob_storage)))
        return FolderBlobs(Path(blob_storage))
    if type(blob_storage).__module__.partition(".")[0] == "obstore":
        return ObjectBlobs(blob_storage)
    if not hasattr(blob_storage, "read_newest"):
        raise UsageError("blob_storage: give a folder, an address such as s3://bucket/folder, or a store of obstore")
    own: Blobs = blob_storage
    return own


def open_address(address: str, variables: Mapping[str, str] | None = None) -> Any:
    """Return a store that answers soon or fails: the tier's queue tries again.

    variables: endpoint and credentials by the names of AWS's variables, before those of the environment.
    Raises UsageError, PackageMissing.
    """
    try:
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ModuleNotFoundError as error:
        raise PackageMissing("pip install 'perdure[workflow]'") from error
    options: Any = {"timeout": "5s", "connect_timeout": "1s", "allow_http": True}
    try:
        config: Any = dict(variables or {})
        return from_url(address, config=config, client_options=options, retry_config={"max_retries": 0})
    except (BaseError, ValueError) as error:
        raise UsageError(f"blob_storage: {error}") from error
