"""Write a message into a folder of the owner's: a new file for each, or an entry at the end of one file.

Trying twice writes once: a new file is replaced by the same bytes, and an entry begins with a mark that is looked for.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from perdure import disk
from perdure.config import DeliveryConfig
from perdure.delivery.message import Delivery, DeliveryFile, MarkStep
from perdure.errors import DeliveryFault, DeliveryRefused, PerdureError

MAX_FILE_BYTES = 50_000_000  # of the file that entries are appended to


def find_folder(config: DeliveryConfig) -> Path:
    """Return the folder of a target, symlinks resolved."""
    return Path(os.path.realpath(Path(config.folder).expanduser()))


def append_to_file(
    config: DeliveryConfig, delivery: Delivery, files: Sequence[DeliveryFile], _: MarkStep
) -> None:  # fmt: skip
    """Write a message and its files into the folder. Raises DeliveryFault, DeliveryRefused."""
    folder = find_folder(config)
    if not folder.is_dir():
        raise DeliveryFault(f"the folder {folder} is not there")
    name = delivery.file or config.file
    path = _find_path(folder, name or f"{delivery.created_at:%Y-%m-%d}-{delivery.id}.md")
    try:
        links = []
        for number, file in enumerate(files, start=1):
            beside = path.with_name(f"{path.stem}-{delivery.id[:8]}-{number}-{file.name}")
            disk.replace_file(beside, file.data)
            links.append(f"- [{file.name}](<{beside.name}>)\n")
        entry = format_entry(delivery, "".join(links), level=2 if name else 1).encode()
        if name:
            with disk.lock_file(path.with_name(f".{path.name}.lock"), wait_s=10):
                _append_once(path, entry)
        else:
            disk.replace_file(path, entry)
    except (OSError, PerdureError) as error:
        if isinstance(error, DeliveryFault):
            raise
        raise DeliveryFault(f"{path}: {error}") from error


def _find_path(folder: Path, name: str) -> Path:
    """Return the path of a name in the folder. Raises DeliveryRefused for one that leads out, or is no plain file."""
    path = Path(os.path.realpath(folder / name)) if "\0" not in name else folder
    if not path.is_relative_to(folder) or path == folder:
        raise DeliveryRefused(f"{name!r} leads out of {folder}")
    if path.exists() and not path.is_file():
        raise DeliveryRefused(f"{path} is no plain file")
    if not path.parent.is_dir():
        raise DeliveryFault(f"the folder {path.parent} is not there")
    return path


def format_entry(delivery: Delivery, links: str, *, level: int) -> str:
    """Return a message as Markdown, with the mark by which it is known."""
    title = f"{'#' * level} {delivery.title}\n\n" if delivery.title else ""
    when = f"*{delivery.created_at:%Y-%m-%d %H:%M} UTC*\n\n"
    attached = f"\n{links}" if links else ""
    return f"<!-- perdure {delivery.id} -->\n{title}{when}{delivery.text.strip()}\n{attached}\n"


def _append_once(path: Path, entry: bytes) -> None:
    """Append an entry, or the rest of one that a killed process began. Raises DeliveryRefused for a file too large."""
    earlier = _read_earlier(path)
    mark = entry.partition(b"\n")[0]
    start = earlier.find(mark)
    rest = entry
    if start >= 0:  # an earlier try wrote it, wholly or in part; a person may have edited it since
        begun = earlier[start:]
        rest = entry[len(begun) :] if entry.startswith(begun) else b""
    elif earlier and not earlier.endswith(b"\n"):
        rest = b"\n" + entry
    if rest:
        disk.append_line(path, rest.removesuffix(b"\n"))


def _read_earlier(path: Path) -> bytes:
    if not path.exists():
        return b""
    if path.stat().st_size > MAX_FILE_BYTES:
        raise DeliveryRefused(f"{path} has more than {MAX_FILE_BYTES:,} bytes: begin a new file")
    return path.read_bytes()
