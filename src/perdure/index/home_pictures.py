"""The pictures of a home: joins the engine that reads them, the cache of its texts and the rows of the index.

It is the work of a background job or of `perdure pictures`: nothing that answers a hook or opens a home loads it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from perdure.access.redact import mask
from perdure.archive.archive import Archive
from perdure.disk import lock_file
from perdure.errors import DamagedRun, NotFound, PictureUnreadable, RuntimeMissing
from perdure.formats.parts import extract_image
from perdure.index import pictures
from perdure.index.pictures import UnreadPicture
from perdure.index.store import IndexConnection
from perdure.pictures.process import ReaderProcess
from perdure.pictures.reader import INSTALL, PictureReader
from perdure.pictures.store import PictureCache, PictureText, delete_cache

_LIST_SIZE = 200  # unread pictures that are listed at once


@dataclass
class PictureResult:
    """The result of reading pictures."""

    n_read: int = 0
    n_faulty: int = 0  # of those read: they could not be opened
    n_left: int = 0


class HomePictures:
    """The pictures of one home. Close it after use."""

    def __init__(self, home: Path, *, reader: PictureReader | None = None) -> None:
        """reader: instead of the engine that is installed."""
        self._home = home
        self._path = home / "cache" / "pictures.db"
        self._reader = reader or ReaderProcess()

    def read(
        self,
        index: IndexConnection,
        archive: Archive,
        *,
        again: bool = False,
        most: int | None = None,
        limit_s: float | None = None,
        stop: Callable[[], bool] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> PictureResult:
        """Read pictures that the engine has not read, those of the newest turns first; each is one transaction.

        again: also those that could not be read before. most, limit_s: begin no further picture after so many, or so
        many seconds. Raises RuntimeMissing without an engine, Busy when another process reads.
        """
        if not self._reader.tag:
            raise RuntimeMissing(INSTALL)
        result, deadline = PictureResult(), None if limit_s is None else time.monotonic() + limit_s
        with lock_file(self._home / ".pictures.lock", wait_s=0), self._open_cache() as cache:
            if again:
                self._drop_faults(index, cache)
            try:
                for unread in self._iter_unread(index):
                    is_late = deadline is not None and time.monotonic() >= deadline
                    if is_late or (stop is not None and stop()) or result.n_read == most:
                        break
                    picture = self._read_one(archive, cache, unread)
                    cache.put(unread.digest, picture)
                    turns = pictures.list_turns(index, unread.digest)
                    if not turns:  # forgotten while it was read, and the cache was cleaned before this text came
                        cache.forget([unread.digest])
                    self._show(index, cache, turns)
                    result.n_read += 1
                    result.n_faulty += bool(picture.fault)
                    if progress:
                        progress(result.n_read, result.n_read + pictures.count_pictures(index).n_unread)
            finally:
                self._reader.close()
        result.n_left = pictures.count_pictures(index).n_unread
        return result

    def _drop_faults(self, index: IndexConnection, cache: PictureCache) -> None:
        """Let pictures that could not be read count as unread."""
        with index.begin_write():
            cache.forget(pictures.drop_faults(index))

    def _iter_unread(self, index: IndexConnection) -> Iterator[UnreadPicture]:
        """Yield pictures as long as there are any; each is to be read before the next."""
        while unread := pictures.list_unread(index, self._reader.tag, limit=_LIST_SIZE):
            yield from unread

    def _read_one(self, archive: Archive, cache: PictureCache, unread: UnreadPicture) -> PictureText:
        """Return the text of a picture: as the cache has it from this engine, or read now; masked."""
        tag = self._reader.tag
        known = cache.get(unread.digest, tag)
        if known is not None and known.tag == tag:
            return known
        body = _find_body(archive, unread)
        if body is None:
            return PictureText(tag, "", "its bytes are not a picture")
        try:
            return PictureText(tag, mask(self._reader.read(body)))
        except PictureUnreadable as error:
            return PictureText(tag, "", error.detail)

    def _show(self, index: IndexConnection, cache: PictureCache, turns: list[int]) -> None:
        """Write what the cache has of the pictures of these turns into the index."""
        with index.begin_write():
            for turn in turns:
                known = {digest: cache.get(digest, self._reader.tag) for digest in pictures.list_digests(index, turn)}
                pictures.write_texts(index, turn, {digest: text for digest, text in known.items() if text is not None})

    def fill_from_cache(self, index: IndexConnection) -> None:
        """Write into an index what the cache has of pictures whose text it lacks. It reads no picture."""
        turns = pictures.list_unshown_turns(index) if self._path.exists() else []
        if turns:
            with self._open_cache() as cache:
                self._show(index, cache, turns)

    def delete_removed(self, index: IndexConnection) -> None:
        """Delete from the cache what was read in pictures that no turn has any more. Raises Busy."""
        removed, unused = pictures.list_removed(index)
        if not removed:
            return
        if self._path.exists():
            with self._open_cache() as cache:
                cache.forget(unused)
        pictures.clear_removed(index, removed)
        self.fill_from_cache(index)

    def delete_all(self) -> None:
        """Delete every text: without the index, nothing says which of them to keep."""
        delete_cache(self._path)

    @contextlib.contextmanager
    def _open_cache(self) -> Iterator[PictureCache]:
        with contextlib.closing(PictureCache(self._path)) as cache:
            yield cache


def _find_body(archive: Archive, unread: UnreadPicture) -> bytes | None:
    """Return the bytes of a picture from the lines of its turn; None if they are not there."""
    try:
        entry = archive.get_entry(unread.captured_in)
        _, parsed = archive.read_turns(entry)
        spans = next((turn.lines for turn in parsed.turns if turn.offset == unread.offset), ())
        offsets = {low for low, _ in spans}
        return extract_image((line.raw for line in archive.read_lines(entry) if line.offset in offsets), unread.digest)
    except (NotFound, DamagedRun):
        return None
