"""Lines made of a source that is rewritten in place, by its adapter: which were posted. Standard library only.

What counts is the last state of the source: a line that was gone from it and returned is posted again. Known by
digests, kept beside the cursors, and like those a convenience: without them all lines are posted again, and the archive
takes what it lacks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from perdure.capture.files import make_folder, replace

_DIGEST_BYTES = 16


def keep(folder: Path, source: str, lines: Sequence[bytes]) -> None:
    """Forget what was posted of a source and is in it no more. Call it before what is fresh is posted."""
    posted, now = _posted(folder, source), set(map(_digest, lines))
    left = [digest for digest in posted if digest in now]
    if len(left) < len(posted):
        replace(_place(folder, source), b"".join(left), sync=False)


def fresh(folder: Path, source: str, lines: Sequence[bytes]) -> list[bytes]:
    """The lines of a source that were not posted, in order, each once."""
    posted = set(_posted(folder, source))
    return [line for line in dict.fromkeys(lines) if _digest(line) not in posted]


def note(folder: Path, source: str, lines: Sequence[bytes]) -> None:
    """Note that these lines were posted. Call it after they are durable; not synced itself."""
    make_folder(folder)
    with _place(folder, source).open("ab") as file:
        torn = file.tell() % _DIGEST_BYTES
        file.truncate(file.tell() - torn)
        file.write(b"".join(map(_digest, lines)))


def _posted(folder: Path, source: str) -> list[bytes]:
    try:
        raw = _place(folder, source).read_bytes()
    except OSError:
        return []
    return [raw[i : i + _DIGEST_BYTES] for i in range(0, len(raw), _DIGEST_BYTES)]


def _digest(line: bytes) -> bytes:
    return hashlib.blake2b(line, digest_size=_DIGEST_BYTES).digest()


def _place(folder: Path, source: str) -> Path:
    return folder / (hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:32] + ".lines")
