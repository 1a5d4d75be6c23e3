"""Export memories as Markdown files, and import such files as well as instructions that people write down.

Nothing is read or written outside the named folder: links that lead out of it are never followed. A
file with text that this home does not know is never overwritten, and everything that an import refuses
is listed with the reason.
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

from perdure import text
from perdure.access.redact import mask
from perdure.environ import find_user_home
from perdure.errors import NotFound, UsageError
from perdure.identity import find_project, make_memory_id
from perdure.memories import markdown
from perdure.memories import markdown as notes
from perdure.memories.explicit import guess_kind
from perdure.memories.markdown import ParsedNotes
from perdure.memories.store import Memories, MemoryDraft
from perdure.regex import lazy_re
from perdure.types import TRUSTS, Memory, MemoryKind, Trust

MAX_FILE_BYTES = 256_000  # of an imported file: instructions are short, and parsing Markdown is slow
MAX_FILES = 20_000
_BATCH_MEMORIES = 200  # memories stored in one event
_SUFFIXES = (".md", ".markdown")
_SKIPPED_FOLDERS = ("node_modules",)  # besides folders whose name begins with a dot
_MEMORY_ID = lazy_re(r"mem-\d{8}-\d{6}-[0-9a-f]{6}\Z")


class FileRefusal(NamedTuple):
    """A file that was skipped."""

    path: str
    why: str


# out ----------------------------------------------------------------------------------------------------------


@dataclass
class ExportResult:
    """The result of an export."""

    n_written: int = 0
    n_same: int = 0  # files with this content already
    refusals: list[FileRefusal] = field(default_factory=list)


def export_files(memories: Memories, folder: Path, *, prefix: str = "", every: bool = False) -> ExportResult:
    """Write the current memories into a folder, one file each; with `every`, superseded and retired ones too.

    Raises UsageError for a folder that is a link, or cannot be made or opened.
    """
    memories_by_file = markdown.choose_file_names(memories.list_memories(prefix=prefix, every=every))
    stored_texts = {memory.text for memory in memories.list_memories(every=True)}
    files = {
        name: markdown.render_memory(memory).encode("utf-8", "replace") for name, memory in memories_by_file.items()
    }
    return write_files(folder, files, can_replace=lambda raw: _is_known(raw, stored_texts))


def write_files(folder: Path, files: Mapping[str, bytes], *, can_replace: Callable[[bytes], bool]) -> ExportResult:
    """Write files below a folder, never through a link.

    can_replace: returns whether a file with other content may be overwritten. Raises UsageError for a folder that is a
    link, or cannot be made or opened.
    """
    result = ExportResult()
    root = _open_folder(folder)
    try:
        for name, raw in files.items():
            try:
                changed = _write_if_changed(root, name, raw, can_replace)
            except OSError as error:
                result.refusals.append(FileRefusal(name, _explain_error(error)))
            except UsageError as error:
                result.refusals.append(FileRefusal(name, error.detail))
            else:
                result.n_written, result.n_same = result.n_written + changed, result.n_same + (not changed)
    finally:
        os.close(root)
    return result


def _open_folder(folder: Path) -> int:
    """Open the folder to write into; make it if it is missing."""
    try:
        if folder.is_symlink():
            raise UsageError(f"{folder} is a link; give the folder itself")
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise UsageError(f"nothing can be written to {folder}: {error.strerror or error}") from error


def _explain_error(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "a link has this name, or a file has the name of a folder; move it away"
    return error.strerror or str(error)


def _write_if_changed(root: int, name: str, raw: bytes, can_replace: Callable[[bytes], bool]) -> bool:
    """Write a file below an open folder, never through a link; return whether anything changed."""
    *parents, file_name = name.split("/")
    descriptors = [os.dup(root)]
    try:
        for part in parents:
            descriptors.append(_open_subfolder(descriptors[-1], part))
        existing = _read_existing(descriptors[-1], file_name, max(MAX_FILE_BYTES, len(raw) + 1))
        if existing == raw:
            return False
        if existing is not None and not can_replace(existing):
            raise UsageError("the file has other content, or edits that are not imported; import it or move it")
        _replace_file(descriptors[-1], file_name, raw)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return True


def _open_subfolder(parent: int, name: str) -> int:
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
    except FileExistsError:
        pass  # opened below only if it is a folder and no link
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)


def _read_existing(folder: int, name: str, max_bytes: int) -> bytes | None:
    """Return the content of a file; None if there is none. Raises OSError for a link."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UsageError("an entry with this name is not a file; move it")
        return file.read(max_bytes)


def _is_known(raw: bytes, stored_texts: Collection[str]) -> bool:
    """Return True if a file is an exported memory whose text is stored here, so that overwriting it loses
    nothing.
    """
    try:
        page = markdown.parse_page(raw.decode())
    except (UnicodeDecodeError, UsageError):
        return False
    return bool(_MEMORY_ID.match(page.get_value("id"))) and page.body in stored_texts


def _replace_file(folder: int, name: str, raw: bytes) -> None:
    """Replace a file in one step."""
    temporary_name = f".{secrets.token_hex(8)}.tmp"
    descriptor = os.open(temporary_name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(raw)
        os.replace(temporary_name, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(temporary_name, dir_fd=folder)
        raise


# in -----------------------------------------------------------------------------------------------------------


@dataclass
class ImportResult:
    """The result of an import."""

    n_files: int = 0
    new: list[Memory] = field(default_factory=list)
    changed: list[Memory] = field(default_factory=list)  # replaced the earlier text of the file
    n_unchanged: int = 0
    n_forgotten: int = 0  # statements that were forgotten here, and stay forgotten
    removed: list[Memory] = field(default_factory=list)  # in the file at its last import, but not now; left unchanged
    left_out: Counter[str] = field(default_factory=Counter)  # code, table, quote, html, long -> how many
    refusals: list[FileRefusal] = field(default_factory=list)


def find_repository(file: Path) -> str | None:
    """Return the repository that contains a file, or None."""
    root = find_project(str(file.parent.absolute()))
    return root if root and (Path(root) / ".git").exists() else None


@dataclass(frozen=True)
class ImportTerms:
    """The trust and the project that imported statements get."""

    trust: Trust = "owner"
    project: Callable[[Path], str | None] = find_repository  # returns the project of a file


def import_files(memories: Memories, paths: Iterable[Path], terms: ImportTerms) -> ImportResult:
    """Import Markdown: exported memories under their ids, other pages statement by statement.

    Importing the same file again changes nothing.
    """
    result = ImportResult()
    drafts: list[tuple[MemoryDraft, bool]] = []  # new memories of an export, and whether they are retired
    for file in iter_files(paths, result.refusals):
        try:
            file_text = read_text(file)
            result.n_files += 1
            if markdown.is_memory_page(file_text):
                drafts += _import_memory_page(memories, markdown.parse_page(file_text), terms, result)
            else:
                _import_notes(memories, file, notes.parse_notes(markdown.strip_header(file_text)), terms, result)
        except UsageError as error:
            result.refusals.append(FileRefusal(str(file), error.detail))
        except OSError as error:
            result.refusals.append(FileRefusal(str(file), error.strerror or str(error)))
    _store_pages(memories, drafts, result)
    return result


def iter_files(paths: Iterable[Path], refusals: list[FileRefusal]) -> Iterator[Path]:
    """Yield the files to read, each once; refuse links that lead out."""
    seen_files: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path}: there is no such file or folder")
        for file in _iter_folder(path, refusals) if path.is_dir() else _iter_named(path, refusals):
            if file.resolve() not in seen_files:
                seen_files.add(file.resolve())
                if len(seen_files) > MAX_FILES:
                    raise UsageError(f"more than {MAX_FILES:,} files; give fewer folders")
                yield file


def _iter_named(path: Path, refusals: list[FileRefusal]) -> Iterator[Path]:
    """Yield a named file; refuse a link that leads out of its repository or folder."""
    root = find_repository(path) or path.parent.absolute()
    if path.is_symlink() and not path.resolve().is_relative_to(Path(root).resolve()):
        refusals.append(FileRefusal(str(path), f"is a link to a place outside {root}; give the file itself"))
        return
    yield path.resolve() if path.is_symlink() else path


def _iter_folder(folder: Path, refusals: list[FileRefusal]) -> Iterator[Path]:
    """Yield the Markdown files below a folder, by name. Links are not followed: their targets are found by
    themselves.
    """
    root = folder.resolve()
    for parent, folders, names in os.walk(folder):
        links = [name for name in (*folders, *names) if (Path(parent) / name).is_symlink()]
        refusals += [
            FileRefusal(str(Path(parent) / name), f"is a link to a place outside {folder}")
            for name in sorted(links)
            if not (Path(parent) / name).resolve().is_relative_to(root)
        ]
        folders[:] = sorted(n for n in folders if not n.startswith(".") and n not in (*_SKIPPED_FOLDERS, *links))
        yield from (Path(parent) / n for n in sorted(names) if n not in links and n.lower().endswith(_SUFFIXES))


def read_text(file: Path) -> str:
    """Return the text of a file. Raises UsageError if it is not a readable text file."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UsageError("is not a file")
        raw = stream.read(MAX_FILE_BYTES + 1)
    if len(raw) > MAX_FILE_BYTES:
        raise UsageError(f"is larger than {MAX_FILE_BYTES:,} bytes; nothing was imported: split it")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"is not UTF-8 (byte {error.start}); nothing was imported: save it as UTF-8") from error


# exported memories ----------------------------------------------------------------------------------------------


def _import_memory_page(
    memories: Memories, page: markdown.MarkdownPage, terms: ImportTerms, result: ImportResult
) -> list[tuple[MemoryDraft, bool]]:
    """Return the draft of a memory that is new here; edit a known one at once. Raises UsageError for an
    invalid page.
    """
    memory_id, page_text = page.get_value("id"), mask(text.printable(page.body).strip())
    if not _MEMORY_ID.match(memory_id):
        raise UsageError(f"id {memory_id[:40]!r} is not the id of a memory")
    memory = _find_memory(memories, memory_id)
    if memory is None:
        return [(_build_draft(page, terms), page.get_value("retired") == "true")]
    if memory.text == page_text or get_current_text(memories, memory) == page_text:
        result.n_unchanged += 1
    elif not memory.is_current:
        raise UsageError(
            f"{memory_id} was {'retired' if memory.retired else 'superseded'} here; its new text was not imported"
        )
    elif terms.trust != "owner":
        raise UsageError(f"{memory_id} has another text in this home; only an import with --trust owner can edit it")
    elif refusal := memories.find_refusal(MemoryDraft(page_text, how="imported")):
        raise UsageError(refusal.why)
    else:
        result.changed.append(memories.edit(memory_id, page_text))
    return []


def _find_memory(memories: Memories, identifier: str) -> Memory | None:
    try:
        return memories.get(identifier)
    except NotFound:
        return None


def get_current_text(memories: Memories, memory: Memory) -> str:
    """Return the current text on the path of a memory; "" if there is none."""
    return next(
        (chain_memory.text for chain_memory in memories.history(memory.memory_id) if chain_memory.is_current), ""
    )


def _build_draft(page: markdown.MarkdownPage, terms: ImportTerms) -> MemoryDraft:
    """Build the draft of a memory from its page, with no more trust than the import allows."""
    if page.get_value("trust") not in ("", *TRUSTS):
        raise UsageError(f"trust {page.get_value('trust')!r} (known: {', '.join(TRUSTS)})")
    trust = max(
        page.get_value("trust") or terms.trust,
        terms.trust,
        key=lambda trust_name: TRUSTS.index(cast("Trust", trust_name)),
    )
    return MemoryDraft(
        page.body,
        cast("MemoryKind", page.get_value("kind") or "fact"),
        page.get_value("path"),
        page.get_value("project") or None,
        stated_at=_parse_time(page, "stated_at"),
        trust=cast("Trust", trust),
        how="imported",
        sources=markdown.parse_spans(page.get_list("sources")),
        made_from=tuple(page.get_list("made_from")),
        entities=tuple(page.get_list("entities")),
        valid_from=_parse_time(page, "valid_from"),
        valid_until=_parse_time(page, "valid_until"),
        pinned=page.get_value("pinned") == "true",
        confidence=_parse_confidence(page.get_value("confidence")),
        agent=page.get_value("agent"),
        memory_id=page.get_value("id"),
    )


def _parse_time(page: markdown.MarkdownPage, name: str) -> datetime | None:
    time_text = page.get_value(name)
    try:
        instant = datetime.fromisoformat(time_text) if time_text else None
    except ValueError as error:
        raise UsageError(f"{name} {time_text[:40]!r} is not a time; write 2026-05-01T14:00:00+00:00") from error
    return instant.astimezone(UTC) if instant else None


def _parse_confidence(share_text: str) -> float:
    try:
        return min(1.0, max(0.0, float(share_text))) if share_text else 1.0
    except ValueError as error:
        raise UsageError(f"confidence {share_text[:40]!r} is not a number from 0 to 1") from error


def _store_pages(memories: Memories, drafts: Sequence[tuple[MemoryDraft, bool]], result: ImportResult) -> None:
    """Keep the memories of an export, oldest first, so that each takes its place in its history."""
    ordered_drafts = sorted(
        drafts, key=lambda item: (item[0].stated_at or datetime.max.replace(tzinfo=UTC), item[0].memory_id)
    )
    for start in range(0, len(ordered_drafts), _BATCH_MEMORIES):
        batch = [
            item for item in ordered_drafts[start : start + _BATCH_MEMORIES] if _is_storable(memories, item[0], result)
        ]
        keep_results = memories.keep_all([draft for draft, _ in batch], by="import")
        result.new += [keep_result.memory for keep_result in keep_results if keep_result.is_new]
        result.n_unchanged += sum(not keep_result.is_new for keep_result in keep_results)
        result.n_forgotten += len(batch) - len(keep_results)
        new_ids = {keep_result.memory.memory_id for keep_result in keep_results if keep_result.is_new}
        retired_ids = [draft.memory_id for draft, was_retired in batch if was_retired and draft.memory_id in new_ids]
        if retired_ids:
            memories.change(retired_ids, by="import", retired=True)


def _is_storable(memories: Memories, draft: MemoryDraft, result: ImportResult) -> bool:
    """Return True if a memory is to be kept. An invalid one is refused alone; one that is current already is
    counted.
    """
    try:
        duplicate = memories.find_duplicate(draft)
    except UsageError as error:
        result.refusals.append(FileRefusal(draft.memory_id, error.detail))
        return False
    result.n_unchanged += duplicate is not None
    return duplicate is None


# notes ----------------------------------------------------------------------------------------------------------


def _import_notes(
    memories: Memories, file: Path, parsed_notes: ParsedNotes, terms: ImportTerms, result: ImportResult
) -> None:
    """Import the statements of a page that it did not have at its last import."""
    project, page = terms.project(file), notes.make_page_path(split_page_path(file))
    items = list(dict.fromkeys(map(_mask_item, parsed_notes.items)))
    new_items, gone_memories = _diff_statements(items, _list_last_imported(memories, page, project))
    replaced_paths = notes.pair_changed(
        [(notes.make_section_path(page, item.headings), item.text) for item in new_items],
        {path: memory.text for path, memory in gone_memories.items()},
    )
    stated_at = min(datetime.fromtimestamp(file.stat().st_mtime, UTC), memories.now())
    drafts = [
        MemoryDraft(
            item.text,
            guess_kind(item.text),
            path,
            project,
            stated_at=stated_at,
            trust=terms.trust,
            how="imported",
            memory_id=make_statement_id(memories, stated_at, path, item.text),
        )
        for n, item in enumerate(new_items)
        for path in [replaced_paths.get(n) or notes.make_item_path(page, item)]
        if n not in replaced_paths
        or get_current_text(memories, gone_memories[path]) != item.text  # its owner has corrected both
    ]
    result.n_unchanged += len(items) - len(drafts)
    _store_statements(memories, drafts, set(replaced_paths.values()), file, result)
    result.removed += [m for path, m in gone_memories.items() if path not in replaced_paths.values() and m.is_current]
    result.left_out.update(parsed_notes.left_out)


def _mask_item(item: notes.NoteItem) -> notes.NoteItem:
    """Return a statement without secrets: they would otherwise be in its path as well."""
    return notes.NoteItem(tuple(map(mask, item.headings)), mask(text.printable(item.text)).strip())


def _store_statements(
    memories: Memories, drafts: Sequence[MemoryDraft], changed_paths: Collection[str], file: Path, result: ImportResult
) -> None:
    """Keep the new statements of a page. changed_paths: the paths whose statements they replace."""
    drafts_with_refusals = [(draft, memories.find_refusal(draft)) for draft in drafts]
    result.refusals += [
        FileRefusal(f"{file}: {text.one_line(draft.text, 60)}", refusal.why)
        for draft, refusal in drafts_with_refusals
        if refusal
    ]
    drafts = [draft for draft, refusal in drafts_with_refusals if not refusal]
    keep_results = memories.keep_all(drafts, by="import") if drafts else []
    for keep_result in keep_results:
        if keep_result.is_new:
            (result.changed if keep_result.memory.path in changed_paths else result.new).append(keep_result.memory)
    result.n_unchanged += sum(not keep_result.is_new for keep_result in keep_results)
    result.n_forgotten += len(drafts) - len(keep_results)


def split_page_path(file: Path) -> tuple[str, ...]:
    """Return the parts of a page's path: below its repository or the user's home, otherwise the folder and the
    file.
    """
    absolute_path = file.absolute()
    for root in (find_repository(absolute_path), str(find_user_home())):
        if root and absolute_path.is_relative_to(root):
            return absolute_path.relative_to(root).parts
    return absolute_path.parts[-2:]


def _list_last_imported(memories: Memories, page: str, project: str | None) -> dict[str, Memory]:
    """Return the statements of the page's last import: path -> the newest memory from it."""
    earlier_memories = memories.list_memories(prefix=page, project=project or "", every=True)
    last_by_path: dict[str, Memory] = {}
    for memory in earlier_memories:  # newest first
        if memory.how == "imported" and memory.agent == memories.agent:
            last_by_path.setdefault(memory.path, memory)
    return last_by_path


def _diff_statements(
    items: Sequence[notes.NoteItem], last_imported: Mapping[str, Memory]
) -> tuple[list[notes.NoteItem], dict[str, Memory]]:
    """Return the statements that are new, and those of the last import that are gone."""
    gone_memories = dict(last_imported)
    paths_by_text: dict[str, list[str]] = {}
    for path, memory in last_imported.items():
        paths_by_text.setdefault(text.normalise(memory.text), []).append(path)
    new_items = []
    for item in items:
        same_paths = paths_by_text.get(text.normalise(item.text))
        if same_paths:
            del gone_memories[same_paths.pop(0)]
        else:
            new_items.append(item)
    return new_items, gone_memories


def make_statement_id(memories: Memories, stated_at: datetime, path: str, text: str) -> str:
    """Return the id of a page's statement, the same in every home; "" for a random id if another memory has
    it.
    """
    new_id = make_memory_id(stated_at, hashlib.sha256(f"{path}\0{text}".encode("utf-8", "surrogatepass")).digest())
    existing = _find_memory(memories, new_id)
    return new_id if existing is None or existing.text == text else ""
