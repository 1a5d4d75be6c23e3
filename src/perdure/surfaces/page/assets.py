"""The files that pages load, as bytes with a digest in their address: a browser may keep them for ever."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from importlib import resources

_KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".webmanifest": "application/json"}


@dataclass(frozen=True, slots=True)
class File:
    """One file."""

    body: bytes
    kind: str
    digest: str  # of its bytes, shortened


@functools.cache
def files() -> dict[str, File]:
    """The files by their names."""
    found = {}
    for place in resources.files("perdure.surfaces.page").joinpath("static").iterdir():
        suffix = "." + place.name.rpartition(".")[2]
        if suffix in _KINDS:
            body = place.read_bytes()
            found[place.name] = File(body, _KINDS[suffix], hashlib.sha256(body).hexdigest()[:16])
    return found


def address(name: str) -> str:
    """Where a file is read. Raises KeyError for one that is not there."""
    return f"/static/{files()[name].digest}/{name}"
