"""The weights that the package carries: found, checked against their pinned hash, and only then read.

`tools/build_weights.py` makes them; `weights.json`, which git holds, says what they must be. Nothing is downloaded.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import msgspec

from perdure.errors import WeightsDamaged, WeightsMissing

FOLDER = Path(__file__).with_name("weights")


class Pin(msgspec.Struct, frozen=True):
    """What a file must be."""

    sha256: str
    bytes: int


@cache
def pins() -> dict[str, Pin]:
    """The files by name."""
    return msgspec.json.decode(FOLDER.with_suffix(".json").read_bytes(), type=dict[str, Pin])


def read(name: str, *, folder: Path = FOLDER) -> bytes:
    """The content of a weights file. Raises WeightsMissing, and WeightsDamaged when it is not what was pinned."""
    try:
        data = (folder / name).read_bytes()
    except OSError as error:
        raise WeightsMissing(str(folder / name)) from error
    if hashlib.sha256(data).hexdigest() != pins()[name].sha256:
        raise WeightsDamaged(str(folder / name))
    return data


def is_there(name: str, *, folder: Path = FOLDER) -> bool:
    """Whether a file lies there in its full length; `read` looks closer."""
    try:
        return (folder / name).stat().st_size == pins()[name].bytes
    except OSError:
        return False


def vocabulary(name: str, *, folder: Path = FOLDER) -> list[str]:
    """The tokens of a vocabulary file in the order of their ids."""
    return read(name, folder=folder).decode("utf-8").removesuffix("\n").split("\n")
