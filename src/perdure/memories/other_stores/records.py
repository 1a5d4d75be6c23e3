"""What the readers of other products' stores share: a record, the contents of a store, and the limits of both.

Files come from anywhere. A file that is too large, no text or no store is refused by name; a damaged line or record
costs only itself, and is listed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from perdure.access.redact import mask
from perdure.errors import UsageError
from perdure.memories.markdown import slugify
from perdure.memories.markdown_io import FileRefusal
from perdure.text import printable
from perdure.types import MemoryKind

MAX_STORE_BYTES = 1 << 26  # of one file that is read as a whole
MAX_RECORDS = 100_000  # of one import
_DIGEST_CHARS = 8
_KINDS: dict[str, MemoryKind] = {  # words by which other products name kinds
    "preference": "preference", "preferences": "preference", "decision": "decision", "procedure": "procedure",
    "process": "procedure", "runbook": "procedure", "howto": "procedure", "how-to": "procedure", "event": "event",
    "change": "event", "bugfix": "event", "feature": "event", "refactor": "event", "summary": "event",
    "insight": "insight", "lesson": "insight",
}  # fmt: skip


class StoreRecord(NamedTuple):
    """One record of a store: a statement with its place there."""

    text: str
    page: str = ""  # the path of the thing that it is about
    headings: tuple[str, ...] = ()  # below that, outermost first
    record_id: str = ""  # its name in the store, stable while its text changes; "": the text is its only name
    kind: MemoryKind | None = None  # None: guessed from the words
    stated_at: datetime | None = None  # None: the store does not say it
    project: str = ""  # a folder, or its name as the store writes it
    entities: tuple[str, ...] = ()
    name: str = ""  # of its subject, with which the text may begin: `name: …`
    label: str = ""  # how a person finds it in the store: a file, a table with a number
    is_note: bool = False  # a paragraph of a text file, which may tell of a day
    raw_text: str = ""  # the text before secrets were masked; only the archive keeps it


@dataclass
class StoreContents:
    """The records of one store, and what of it was left out."""

    path: str  # of the file or folder
    changed_at: datetime | None = None
    records: list[StoreRecord] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)  # kind of entry -> how many
    refusals: list[FileRefusal] = field(default_factory=list)
    has_own_pages: bool = False  # each page is a file: no other store of the product has it

    def add(self, record: StoreRecord) -> None:
        """Add a record with its secrets masked; count one without words. Raises UsageError beyond MAX_RECORDS."""
        text = printable(record.text).strip()
        if not text:
            self.left_out["empty"] += 1
            return
        if len(self.records) >= MAX_RECORDS:
            raise UsageError(f"{self.path} has more than {MAX_RECORDS:,} records; give parts of it")
        masked_record = record._replace(
            text=mask(text),
            headings=tuple(map(mask, record.headings)),
            record_id=_mask_id(record.record_id),
            project=mask(record.project),
            entities=tuple(map(mask, record.entities)),
            name=mask(record.name),
            label=mask(record.label),
            raw_text=text,
        )
        self.records.append(masked_record)


def _mask_id(record_id: str) -> str:
    """Return the name of a record in its store without a secret, and still unlike every other name."""
    masked_id = mask(record_id)
    return record_id if masked_id == record_id else f"{masked_id}-{make_digest(record_id)}"


def make_digest(words: str) -> str:
    """Return a short digest of words: it tells apart what looks alike in a path."""
    return hashlib.sha256(words.encode("utf-8", "replace")).hexdigest()[:_DIGEST_CHARS]


def make_page(store: str, *names: str) -> str:
    """Return the path of a thing in a store. A secret in a name is masked while it still looks like one.

    >>> make_page("memory-server", "Mira_Okafor")
    'memory-server/mira-okafor'
    """
    return "/".join([store, *(slugify(mask(name)) for name in names)])


def to_kind(name: str) -> MemoryKind | None:
    """Return the kind of memory for another product's word; None if it names none.

    >>> to_kind("bugfix"), to_kind("tech")
    ('event', None)
    """
    return _KINDS.get(name.strip().lower())


def name_subject(subject: str, statement: str) -> str:
    """Return a statement that names its subject. The subject is masked before its words are changed.

    >>> name_subject("Mira_Okafor", "Answers by mail"), name_subject("shop", "The shop opens at nine")
    ('Mira Okafor: Answers by mail', 'The shop opens at nine')
    """
    subject = mask(subject)
    words = " ".join(subject.replace("_", " ").split())
    is_named = any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", statement, re.IGNORECASE) for name in (words, subject))
    return statement if is_named or not words else f"{words}: {statement}"


def read_file(path: Path) -> str:
    """Return the text of a file. Raises UsageError for one that is too large, no file or not UTF-8."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UsageError(f"{path} is not a file")
        raw = stream.read(MAX_STORE_BYTES + 1)
    if len(raw) > MAX_STORE_BYTES:
        raise UsageError(f"{path} is larger than {MAX_STORE_BYTES:,} bytes; nothing was imported: split it")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 (byte {error.start}); nothing was imported") from error


def parse_json(text: str) -> Any:
    """Return a JSON value. Raises ValueError for one that is damaged or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def iter_json_lines(text: str, contents: StoreContents) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the objects of a file with one a line, with their line numbers; refuse other lines by number."""
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = parse_json(line)
        except ValueError as error:
            contents.refusals.append(FileRefusal(f"{contents.path}:{number}", f"is no JSON: {error}"))
            continue
        if isinstance(value, dict):
            yield number, value
        else:
            contents.refusals.append(FileRefusal(f"{contents.path}:{number}", "is no JSON object"))


def list_texts(value: Any) -> list[str]:
    """Return the texts of a list; nothing for another value."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def find_first(paths: Iterable[Path]) -> Path | None:
    """Return the first of these paths that exists."""
    return next((path for path in paths if path.exists()), None)
