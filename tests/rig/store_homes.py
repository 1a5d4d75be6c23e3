"""Homes that share the store of one archive, and what a test asks of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import perdure
from perdure import Home
from perdure.archive import run_files
from perdure.objects import Objects

CONFIG = """user = "{user}"
machine = "{machine}"
[archive]
store = "{store}"
[models.embedder]
kind = "off"
"""


def make_home(folder: Path, store: str, *, machine: str = "", user: str = "ada") -> Path:
    """A folder with settings and nothing else: a new machine of an archive."""
    folder.mkdir(mode=0o700)
    (folder / "config.toml").write_text(CONFIG.format(user=user, machine=machine or folder.name, store=store))
    return folder


def make_lines(*texts: str, day: int = 1) -> bytes:
    """Lines of a session, one message each."""
    messages = [
        {"timestamp": f"2026-01-{day:02d}T10:00:{n % 60:02d}Z", "role": "user", "content": text}
        for n, text in enumerate(texts)
    ]
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def capture(home: Home, session: str, *texts: str, day: int = 1) -> None:
    """Capture messages behind those that a session has."""
    stamp = f"2026-01-{day:02d}T10:00:00Z"
    answer = home.capture_messages(
        [{"role": "user", "content": text, "timestamp": stamp} for text in texts], session=session
    )
    assert answer.outcome == "stored"


def read_texts(home: Home) -> list[str]:
    """Every line of every run, in order of runs; a line that is there twice is listed twice."""
    entries = list(home.archive.ledger.list_runs())
    return [json.loads(line.raw).get("content", "forgotten") for e in entries for line in home.archive.read_lines(e)]


def open_texts(folder: Path) -> list[str]:
    """The lines that a machine finds, sorted."""
    with perdure.open(folder) as home:
        return sorted(read_texts(home))


def read_everything(objects: Objects, names: Sequence[str]) -> bytes:
    """The bytes of all objects, decompressed: nothing in a store may hold what was forgotten."""
    everything = b""
    for name in names:
        data = objects.get(name) or b""
        everything += name.encode() + b"\n" + data
        if name.endswith(".zst"):
            pairs = run_files.decode_pack(data, location=name)
            everything += b"".join(stored_bytes + run_files.encode_run(run) for run, stored_bytes in pairs)
    return everything


def list_folder(root: Path) -> list[str]:
    """The names of the objects in a folder."""
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
