"""Memories as Markdown files, out and in: an export that anything reads, and the instructions that people write down.

Nothing is read or written outside the folder that was named: links are never followed out of it. A file that holds what
this home does not know is never overwritten, and what an import cannot take is named with the reason.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, cast

from perdure import text as words
from perdure.access.redact import mask
from perdure.environ import user_home
from perdure.errors import NotFound, UsageError
from perdure.identity import memory_id, project_of
from perdure.memories import markdown, notes
from perdure.memories.kinds import guessed
from perdure.memories.notes import Notes
from perdure.mind.memories import Draft, Memories
from perdure.patterns import late
from perdure.types import TRUSTS, Memory, MemoryKind, Trust

MAX_FILE_BYTES = 256_000  # of a file that is taken in: instructions are short, and reading Markdown takes its time
MAX_FILES = 20_000
_BATCH = 200  # memories in one event
_SUFFIXES = (".md", ".markdown")
_PASSED_OVER = ("node_modules",)  # folders; those that begin with a dot, too
_ID = late(r"mem-\d{8}-\d{6}-[0-9a-f]{6}\Z")


class Refused(NamedTuple):
    """A file that was left alone."""

    path: str
    why: str


# out ----------------------------------------------------------------------------------------------------------


@dataclass
class Exported:
    """What an export did."""

    n_written: int = 0
    n_same: int = 0  # files that held it already
    refused: list[Refused] = field(default_factory=list)


def export(memories: Memories, folder: Path, *, prefix: str = "", every: bool = False) -> Exported:
    """Write what is believed into a folder, a file each; with `every`, also what was superseded or retired.

    Raises UsageError for a folder that is a link, or cannot be made or opened.
    """
    chosen = markdown.files(memories.listed(prefix=prefix, every=every))
    known = {memory.text for memory in memories.listed(every=True)}
    done = Exported()
    root = _opened(folder)
    try:
        for name, memory in chosen.items():
            try:
                changed = _put(root, name, markdown.render(memory).encode("utf-8", "replace"), known)
            except OSError as error:
                done.refused.append(Refused(name, _in_words(error)))
            except UsageError as error:
                done.refused.append(Refused(name, error.detail))
            else:
                done.n_written, done.n_same = done.n_written + changed, done.n_same + (not changed)
    finally:
        os.close(root)
    return done


def _opened(folder: Path) -> int:
    """The folder to write into, made where it is missing."""
    try:
        if folder.is_symlink():
            raise UsageError(f"{folder} is a link; name the folder itself")
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise UsageError(f"nothing can be written to {folder}: {error.strerror or error}") from error


def _in_words(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "a link stands in its place, or a file where a folder has to be; move it away"
    return error.strerror or str(error)


def _put(root: int, name: str, raw: bytes, known: Collection[str]) -> bool:
    """Write a file below an open folder, never through a link; returns whether anything changed."""
    *above, last = name.split("/")
    opened = [os.dup(root)]
    try:
        for part in above:
            opened.append(_folder(opened[-1], part))
        there = _read_at(opened[-1], last)
        if there == raw:
            return False
        if there is not None and not _is_known(there, known):
            raise UsageError("it holds something else, or changes that were not imported; import it, or move it away")
        _replace(opened[-1], last, raw)
    finally:
        for one in opened:
            os.close(one)
    return True


def _folder(parent: int, name: str) -> int:
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
    except FileExistsError:
        pass  # what stands there is opened only if it is a folder and no link
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)


def _read_at(folder: int, name: str) -> bytes | None:
    """What a file holds; None when there is none. Raises OSError for a link."""
    try:
        place = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except FileNotFoundError:
        return None
    with os.fdopen(place, "rb") as file:
        if not stat.S_ISREG(os.fstat(place).st_mode):
            raise UsageError("something that is no file stands in its place; move it away")
        return file.read(MAX_FILE_BYTES)


def _is_known(raw: bytes, known: Collection[str]) -> bool:
    """Whether a file is an exported memory whose words are kept here: then nothing is lost with it."""
    try:
        page = markdown.read(raw.decode())
    except (UnicodeDecodeError, UsageError):
        return False
    return bool(_ID.match(page.one("id"))) and page.body in known


def _replace(folder: int, name: str, raw: bytes) -> None:
    """Put a file in its place at once."""
    fresh = f".{secrets.token_hex(8)}.tmp"
    place = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder)
    try:
        with os.fdopen(place, "wb") as file:
            file.write(raw)
        os.replace(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(fresh, dir_fd=folder)
        raise


# in -----------------------------------------------------------------------------------------------------------


@dataclass
class Taken:
    """What an import did."""

    n_files: int = 0
    new: list[Memory] = field(default_factory=list)
    changed: list[Memory] = field(default_factory=list)  # took the place of what stood in the file before
    n_unchanged: int = 0
    n_forgotten: int = 0  # statements that were forgotten here, and stay so
    removed: list[Memory] = field(default_factory=list)  # stood in a file before; nothing was done about them
    left_out: Counter[str] = field(default_factory=Counter)  # code, table, quote, html, long -> how many
    refused: list[Refused] = field(default_factory=list)


def repository_of(file: Path) -> str | None:
    """The repository that a file lies in, or None."""
    root = project_of(str(file.parent.absolute()))
    return root if root and (Path(root) / ".git").exists() else None


@dataclass(frozen=True)
class Terms:
    """How statements of files are taken in."""

    trust: Trust = "owner"
    project: Callable[[Path], str | None] = repository_of  # of a file's notes


def take(memories: Memories, paths: Iterable[Path], terms: Terms) -> Taken:
    """Take in Markdown: exported memories under their ids, other pages statement by statement; twice is once."""
    done = Taken()
    drafts: list[tuple[Draft, bool]] = []  # memories of an export that are new here, and whether they are retired
    for file in _files(paths, done):
        try:
            said = _read(file)
            done.n_files += 1
            if markdown.is_memory(said):
                drafts += _of_page(memories, markdown.read(said), terms, done)
            else:
                _take_notes(memories, file, notes.read(markdown.body(said)), terms, done)
        except UsageError as error:
            done.refused.append(Refused(str(file), error.detail))
        except OSError as error:
            done.refused.append(Refused(str(file), error.strerror or str(error)))
    _keep_pages(memories, drafts, done)
    return done


def _files(paths: Iterable[Path], done: Taken) -> Iterator[Path]:
    """The files to look at, each once; what lies behind a link that leads out is refused."""
    seen: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path}: there is no such file or folder")
        for file in _below(path, done) if path.is_dir() else _named(path, done):
            if file.resolve() not in seen:
                seen.add(file.resolve())
                if len(seen) > MAX_FILES:
                    raise UsageError(f"more than {MAX_FILES:,} files; name the folders that matter")
                yield file


def _named(path: Path, done: Taken) -> Iterator[Path]:
    """A file that was named; a link only where it stays in its repository or folder."""
    root = repository_of(path) or path.parent.absolute()
    if path.is_symlink() and not path.resolve().is_relative_to(Path(root).resolve()):
        done.refused.append(Refused(str(path), f"is a link that leads out of {root}; name the file itself"))
        return
    yield path.resolve() if path.is_symlink() else path


def _below(folder: Path, done: Taken) -> Iterator[Path]:
    """The Markdown below a folder, in the order of names. Links are not followed: what they name is found itself."""
    root = folder.resolve()
    for place, folders, names in os.walk(folder):
        links = [name for name in (*folders, *names) if (Path(place) / name).is_symlink()]
        done.refused += [
            Refused(str(Path(place) / name), f"is a link that leads out of {folder}")
            for name in sorted(links)
            if not (Path(place) / name).resolve().is_relative_to(root)
        ]
        folders[:] = sorted(n for n in folders if not n.startswith(".") and n not in (*_PASSED_OVER, *links))
        yield from (Path(place) / n for n in sorted(names) if n not in links and n.lower().endswith(_SUFFIXES))


def _read(file: Path) -> str:
    """The text of a file. Raises UsageError for what is none."""
    place = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(place, "rb") as opened:
        if not stat.S_ISREG(os.fstat(place).st_mode):
            raise UsageError("is no file")
        raw = opened.read(MAX_FILE_BYTES + 1)
    if len(raw) > MAX_FILE_BYTES:
        raise UsageError(f"is larger than {MAX_FILE_BYTES:,} bytes; nothing of it was taken: split it")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"is not UTF-8 (byte {error.start}); nothing of it was taken: save it as UTF-8") from error


# exported memories ----------------------------------------------------------------------------------------------


def _of_page(memories: Memories, page: markdown.Page, terms: Terms, done: Taken) -> list[tuple[Draft, bool]]:
    """A memory that is new here, to be kept; an edited one is edited at once. Raises UsageError for a strange page."""
    name, said = page.one("id"), mask(words.printable(page.body).strip())
    if not _ID.match(name):
        raise UsageError(f"id {name[:40]!r} is no memory's")
    known = _known(memories, name)
    if known is None:
        return [(_draft(page, terms), page.one("retired") == "true")]
    if known.text == said or _current_of(memories, known) == said:
        done.n_unchanged += 1
    elif not known.is_current:
        raise UsageError(
            f"{name} was {'retired' if known.retired else 'superseded'} here; its new words were not taken"
        )
    elif terms.trust != "owner":
        raise UsageError(f"{name} has other words here, and only an import with --trust owner edits them")
    elif why := memories.refusal(Draft(said, how="imported")):
        raise UsageError(why)
    else:
        done.changed.append(memories.edit(name, said))
    return []


def _known(memories: Memories, name: str) -> Memory | None:
    try:
        return memories.get(name)
    except NotFound:
        return None


def _current_of(memories: Memories, memory: Memory) -> str:
    """What is believed at the place of a memory; "" when nothing is."""
    return next((one.text for one in memories.history(memory.memory_id) if one.is_current), "")


def _draft(page: markdown.Page, terms: Terms) -> Draft:
    """A memory as a page says it is, trusted no more than the import allows."""
    if page.one("trust") not in ("", *TRUSTS):
        raise UsageError(f"trust {page.one('trust')!r} (known: {', '.join(TRUSTS)})")
    trust = max(page.one("trust") or terms.trust, terms.trust, key=lambda one: TRUSTS.index(cast("Trust", one)))
    return Draft(
        page.body, cast("MemoryKind", page.one("kind") or "fact"), page.one("path"), page.one("project") or None,
        stated_at=_at(page, "stated_at"), trust=cast("Trust", trust), how="imported",
        sources=markdown.spans(page.several("sources")), made_from=tuple(page.several("made_from")),
        entities=tuple(page.several("entities")), valid_from=_at(page, "valid_from"),
        valid_until=_at(page, "valid_until"), pinned=page.one("pinned") == "true",
        confidence=_share(page.one("confidence")), agent=page.one("agent"), memory_id=page.one("id"),
    )  # fmt: skip


def _at(page: markdown.Page, name: str) -> datetime | None:
    raw = page.one(name)
    try:
        found = datetime.fromisoformat(raw) if raw else None
    except ValueError as error:
        raise UsageError(f"{name} {raw[:40]!r} is no time; write 2026-05-01T14:00:00+00:00") from error
    return found.astimezone(UTC) if found else None


def _share(raw: str) -> float:
    try:
        return min(1.0, max(0.0, float(raw))) if raw else 1.0
    except ValueError as error:
        raise UsageError(f"confidence {raw[:40]!r} is no number from 0 to 1") from error


def _keep_pages(memories: Memories, drafts: Sequence[tuple[Draft, bool]], done: Taken) -> None:
    """Keep what an export brought, oldest first, so that each takes its place in its history."""
    ordered = sorted(
        drafts, key=lambda item: (item[0].stated_at or datetime.max.replace(tzinfo=UTC), item[0].memory_id)
    )
    for low in range(0, len(ordered), _BATCH):
        part = [item for item in ordered[low : low + _BATCH] if _is_fit(memories, item[0], done)]
        kept = memories.keep_all([draft for draft, _ in part], by="import")
        done.new += [one.memory for one in kept if one.is_new]
        done.n_unchanged += sum(not one.is_new for one in kept)
        done.n_forgotten += len(part) - len(kept)
        made = {one.memory.memory_id for one in kept if one.is_new}
        retired = [draft.memory_id for draft, was_retired in part if was_retired and draft.memory_id in made]
        if retired:
            memories.change(retired, by="import", retired=True)


def _is_fit(memories: Memories, draft: Draft, done: Taken) -> bool:
    """Whether a memory is to be kept: what cannot be is refused, alone, and what is believed already is left."""
    try:
        known = memories.said_already(draft)
    except UsageError as error:
        done.refused.append(Refused(draft.memory_id, error.detail))
        return False
    done.n_unchanged += known is not None
    return known is None


# notes ----------------------------------------------------------------------------------------------------------


def _take_notes(memories: Memories, file: Path, found: Notes, terms: Terms, done: Taken) -> None:
    """Take in the statements of a page: what it did not say when it was last taken in."""
    project, page = terms.project(file), notes.page_path(_place(file))
    said = list(dict.fromkeys(map(_masked, found.items)))
    fresh, gone = _differing(said, _last_taken(memories, page, project))
    changed = notes.paired(
        [(notes.section_path(page, item.headings), item.text) for item in fresh],
        {path: memory.text for path, memory in gone.items()},
    )
    stated_at = min(datetime.fromtimestamp(file.stat().st_mtime, UTC), memories.now())
    drafts = [
        Draft(item.text, guessed(item.text), path, project, stated_at=stated_at, trust=terms.trust, how="imported",
              memory_id=_id(memories, stated_at, path, item.text))
        for n, item in enumerate(fresh)
        for path in [changed.get(n) or notes.item_path(page, item)]
        if n not in changed or _current_of(memories, gone[path]) != item.text  # its owner has corrected both
    ]  # fmt: skip
    done.n_unchanged += len(said) - len(drafts)
    _keep_statements(memories, drafts, set(changed.values()), file, done)
    done.removed += [m for path, m in gone.items() if path not in changed.values() and m.is_current]
    done.left_out.update(found.left_out)


def _masked(item: notes.Item) -> notes.Item:
    """A statement without secrets: they would stand in its path as well."""
    return notes.Item(tuple(map(mask, item.headings)), mask(words.printable(item.text)).strip())


def _keep_statements(
    memories: Memories, drafts: Sequence[Draft], changed: Collection[str], place: Path, done: Taken
) -> None:
    """Keep what a page says now. changed: the paths at which something else stood."""
    whys = [(draft, memories.refusal(draft)) for draft in drafts]
    done.refused += [Refused(f"{place}: {words.one_line(draft.text, 60)}", why) for draft, why in whys if why]
    drafts = [draft for draft, why in whys if not why]
    kept = memories.keep_all(drafts, by="import") if drafts else []
    for one in kept:
        if one.is_new:
            (done.changed if one.memory.path in changed else done.new).append(one.memory)
    done.n_unchanged += sum(not one.is_new for one in kept)
    done.n_forgotten += len(drafts) - len(kept)


def _place(file: Path) -> tuple[str, ...]:
    """The parts of a page's path: below its repository, the user's home, or else with the folder that it lies in."""
    whole = file.absolute()
    for root in (repository_of(whole), str(user_home())):
        if root and whole.is_relative_to(root):
            return whole.relative_to(root).parts
    return whole.parts[-2:]


def _last_taken(memories: Memories, page: str, project: str | None) -> dict[str, Memory]:
    """What a page said when it was last taken in: path -> the newest statement that came from it."""
    known = memories.listed(prefix=page, project=project or "", every=True)
    found: dict[str, Memory] = {}
    for memory in known:  # newest first
        if memory.how == "imported" and memory.agent == memories.agent:
            found.setdefault(memory.path, memory)
    return found


def _differing(said: Sequence[notes.Item], before: Mapping[str, Memory]) -> tuple[list[notes.Item], dict[str, Memory]]:
    """(statements that were not there before, what was there before and is not any more)."""
    gone = dict(before)
    by_words: dict[str, list[str]] = {}
    for path, memory in before.items():
        by_words.setdefault(words.normalised(memory.text), []).append(path)
    fresh = []
    for item in said:
        same = by_words.get(words.normalised(item.text))
        if same:
            del gone[same.pop(0)]
        else:
            fresh.append(item)
    return fresh, gone


def _id(memories: Memories, stated_at: datetime, path: str, text: str) -> str:
    """The id of a statement of a page, the same in every home; "" for a random one when another has it."""
    made = memory_id(stated_at, hashlib.sha256(f"{path}\0{text}".encode("utf-8", "surrogatepass")).digest())
    known = _known(memories, made)
    return made if known is None or known.text == text else ""
