"""Read and write Markdown: a memory as a file with a header of fields, and a page of notes as statements.
Pure.

The header is YAML that any editor of notes can read, between two lines of `---`. Of YAML it accepts
what such editors write: a value, a list in brackets or with dashes. Any other header, one with aliases or
with lists in lists, is refused, never half understood.

A page of notes or instructions gives one statement for each list item and each short paragraph. A list
item stays together with the lines indented below it, in the words of the page. Code, tables, quotations
and HTML are left out and counted: they are examples and other people's words.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perdure.archive.memory_events import fold_path
from perdure.errors import UsageError
from perdure.memories import subject
from perdure.regex import lazy_re
from perdure.text import normalise
from perdure.types import Memory, Span

if TYPE_CHECKING:
    from markdown_it.token import Token

MAX_HEADER_LINES = 400  # with the dashes; a longer one is not read as a header
_MAX_NAME_BYTES = 200  # of a file or folder; common file systems take 255
_PLAIN_VALUE = lazy_re(r"[A-Za-z][A-Za-z0-9 _./-]*[A-Za-z0-9]\Z")
_RESERVED_WORDS = frozenset(("true", "false", "null", "yes", "no", "on", "off"))  # YAML reads them as other types
# YAML refuses these or takes them for ends of lines; JSON, in which values are written, allows them
_NO_YAML_CHAR = lazy_re("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_SPAN = lazy_re(r"(\S{1,64}) (\d{1,15})-(\d{1,15})\Z")

FieldValue = str | list[str]


@dataclass(frozen=True)
class MarkdownPage:
    """A Markdown file: the fields of its front matterer, and its body."""

    fields: Mapping[str, FieldValue]
    body: str

    def get_value(self, name: str) -> str:
        """Return the value of a field; "" if there is none."""
        value = self.fields.get(name, "")
        return value if isinstance(value, str) else ""

    def get_list(self, name: str) -> list[str]:
        """Return the values of a field with any number of them."""
        value = self.fields.get(name, [])
        return [value] * bool(value) if isinstance(value, str) else value


def render_memory(memory: Memory) -> str:
    """Return a memory as a file."""
    header = "".join(f"{name}: {to_yaml(value)}\n" for name, value in _build_header(memory).items() if value)
    return f"---\n{header}---\n\n{memory.text}\n"


def _build_header(memory: Memory) -> dict[str, Any]:
    """Return the fields of a header, in order; empty ones are left out when they are written."""
    return {
        "id": memory.memory_id,
        "path": memory.path,
        "kind": memory.kind,
        "stated_at": memory.stated_at.isoformat(),
        "trust": memory.trust,
        "how": memory.how,
        "agent": memory.agent,
        "project": memory.project,
        "valid_from": memory.valid_from.isoformat() if memory.valid_from else "",
        "valid_until": memory.valid_until.isoformat() if memory.valid_until else "",
        "pinned": "true" if memory.pinned else "",
        "retired": "true" if memory.retired else "",
        "superseded_by": memory.superseded_by,
        "confidence": f"{memory.confidence:g}" if memory.confidence < 1 else "",
        "entities": list(memory.entities),
        "made_from": list(memory.made_from),
        "sources": [f"{span.run_id} {span.from_offset}-{span.to_offset}" for span in memory.sources],
    }


def to_yaml(value: str | list[str]) -> str:
    """Return a value as YAML: plain where that is safe, otherwise as JSON, which is YAML too."""
    if isinstance(value, str) and (
        value == "true" or (_PLAIN_VALUE.match(value) and value.lower() not in _RESERVED_WORDS)
    ):
        return value
    return json.dumps(value, ensure_ascii=False)


def parse_page(text: str) -> MarkdownPage:
    """Return the fields and the body of a file; without a header all of it is body. Raises UsageError for a
    bad header.

    >>> parse_page("---\\nkind: fact\\nentities:\\n- Mira\\n---\\nMira answers by mail.\\n")
    MarkdownPage(fields={'kind': 'fact', 'entities': ['Mira']}, body='Mira answers by mail.')
    """
    header, body = _split_header(text)
    return MarkdownPage(_parse_header(header) if header else {}, body.strip())


def is_memory_page(text: str) -> bool:
    """Return True if a file claims to be an exported memory."""
    start = text.removeprefix("\ufeff").replace("\r\n", "\n")[:4096]
    return start.startswith("---\n") and any(
        line.startswith(("id: mem-", 'id: "mem-', "id: 'mem-")) for line in start.split("\n")[1:]
    )


def strip_header(text: str) -> str:
    """Return the body of a file, even if its header is invalid."""
    return _split_header(text)[1]


def _split_header(text: str) -> tuple[str, str]:
    """Return the header of a file, "" if there is none, and its body."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() == "---":
        for n, line in enumerate(lines[1:MAX_HEADER_LINES], 1):
            if line.rstrip() in ("---", "..."):
                return "\n".join(lines[1:n]), "\n".join(lines[n + 1 :])
    return "", "\n".join(lines)


def _parse_header(header: str) -> dict[str, FieldValue]:
    """Return the fields of a header, each a text or a list of texts: no word becomes a date or a boolean.

    The events are checked first, so that deep nesting and aliases never reach the loader.
    """
    import yaml  # takes 20 ms, only needed to read exported memories

    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    kinds_by_depth = ((yaml.MappingStartEvent,), (yaml.ScalarEvent, yaml.SequenceStartEvent), (yaml.ScalarEvent,))
    header, depth = _NO_YAML_CHAR.sub(lambda match: f"\\u{ord(match[0]):04x}", header), 0
    try:
        for event in yaml.parse(header, Loader=loader):
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.NodeEvent) and not isinstance(event, kinds_by_depth[depth]):
                raise _build_refusal(event.start_mark)
            depth += isinstance(event, yaml.CollectionStartEvent)
        return yaml.load(header, Loader=loader) or {}
    except (yaml.YAMLError, ValueError) as error:
        raise _build_refusal(getattr(error, "problem_mark", None)) from error


def _build_refusal(mark: Any) -> UsageError:
    place = f"line {mark.line + 2} of its front matter" if mark else "its front matter"
    return UsageError(f"{place} is not valid; write `name: value` or `name: [one, two]`")


def parse_spans(source_texts: Iterable[str]) -> tuple[Span, ...]:
    """Return the sources that a header names. Raises UsageError for an invalid one."""
    matches = [(source_text, _SPAN.match(source_text)) for source_text in source_texts]
    invalid = [source_text for source_text, match in matches if not match]
    if invalid:
        raise UsageError(
            f"source {invalid[0][:60]!r} is not valid; write the id of the run and the byte range: 01m4x8… 0-120"
        )
    return tuple(Span(match[1], int(match[2]), int(match[3])) for _, match in matches if match)


# names of files -----------------------------------------------------------------------------------------------


def choose_file_names(memories: Iterable[Memory]) -> dict[str, Memory]:
    """Return the file name of each memory, relative and with `/`: its path, with the id added if the path is
    taken.

    No two names differ only in case, and no name is also that of a folder. Of several memories on one path,
    the first that is current and belongs to no project gets the plain name.
    """
    ordered_memories = sorted(memories, key=lambda m: (not m.is_current, m.project or "", m.agent, m.memory_id))
    stems_by_id = {memory.memory_id: "/".join(map(to_file_name, memory.path.split("/"))) for memory in ordered_memories}
    folders = {_fold_name(parent) for stem in stems_by_id.values() for parent in _list_parents(stem)}
    taken_names: dict[str, str] = {}
    memories_by_file = {}
    for memory in ordered_memories:
        stem = stems_by_id[memory.memory_id]
        plain_name = f"{stem}.md"
        name = (
            plain_name
            if _fold_name(plain_name) not in taken_names and _fold_name(plain_name) not in folders
            else f"{stem}.{memory.memory_id}.md"
        )
        taken_names[_fold_name(name)] = name
        memories_by_file[name] = memory
    return dict(sorted(memories_by_file.items()))


def _list_parents(file_stem: str) -> Iterable[str]:
    parts = file_stem.split("/")
    return ("/".join(parts[:n]) for n in range(1, len(parts)))


def _fold_name(name: str) -> str:
    return fold_path(name)


def to_file_name(part: str) -> str:
    """Return a part of a path as the name of a file or folder: never hidden, never too long."""
    safe_name = "_" + part if part.startswith(".") else part
    safe_name = "".join("_" if char in '<>:"|?*' else char for char in unicodedata.normalize("NFC", safe_name))
    return safe_name.encode()[:_MAX_NAME_BYTES].decode("utf-8", "ignore").rstrip(" .") or "_"


MAX_STATEMENT_CHARS = 2000  # of a statement; a longer paragraph is prose: left out and counted
_SLUG_BYTES = 24  # of one part of a path: ten parts stay below the longest allowed path
_MAX_HEADINGS = 3  # in a path; the innermost ones
MAX_COMPARED = 1_000_000  # pairs of a new and an old statement: about a thousand changed lines
_HASH_CHARS = 4  # of a hash that distinguishes items with the same beginning
_OMITTED_KINDS = {"fence": "code", "code_block": "code", "table_open": "table", "html_block": "html"}
_WORD = lazy_re(r"\w+")


@dataclass(frozen=True)
class NoteItem:
    """A statement of a page."""

    headings: tuple[str, ...]  # above it, outermost first
    text: str


@dataclass(frozen=True)
class ParsedNotes:
    """The statements of a page, and how much was left out."""

    items: tuple[NoteItem, ...]
    left_out: Mapping[str, int]  # code, table, quote, html, long -> how many


def parse_notes(body: str) -> ParsedNotes:
    """Return the statements of a page, in order, each once under one heading. A title does not count as a
    heading.
    """
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])  # inline markup such as bold or links does not matter
    left_out: Counter[str] = Counter()
    items = tuple(dict.fromkeys(_iter_items(parser.parse(body), left_out)))
    return ParsedNotes(items, dict(left_out))


def _iter_items(tokens: Sequence[Token], left_out: Counter[str]) -> Iterable[NoteItem]:
    """Yield each statement with its headings; count the blocks that are left out in left_out."""
    headings: dict[int, str] = {}
    index = 0
    while index < len(tokens):
        token = tokens[index]
        end = _find_block_end(tokens, index)
        if token.type == "heading_open":
            level = int(token.tag[1:])
            if index == 0 and level == 1:  # the page's title
                level = 0
            headings = {n: words for n, words in headings.items() if n < level} | {level: tokens[index + 1].content}
        elif token.type in ("list_item_open", "paragraph_open"):
            words = _render_block(tokens[index:end], left_out)
            if _is_statement(
                words, left_out, is_before_list=token.type == "paragraph_open" and _is_before_list(tokens, end)
            ):
                yield NoteItem(tuple(headings[n] for n in sorted(headings) if n), words)
        elif token.type == "blockquote_open":
            left_out["quote"] += 1
        elif token.type in _OMITTED_KINDS:
            left_out[_OMITTED_KINDS[token.type]] += 1
        inside = token.type in ("bullet_list_open", "ordered_list_open")  # go on with its items
        index = index + 1 if inside else end


def _find_block_end(tokens: Sequence[Token], start: int) -> int:
    """Return the index after a block and everything in it."""
    level, depth = tokens[start].level, tokens[start].nesting
    if depth != 1:
        return start + 1
    return next(n for n in range(start + 1, len(tokens)) if tokens[n].level == level and tokens[n].nesting == -1) + 1


def _render_block(block: Sequence[Token], left_out: Counter[str]) -> str:
    """Return the text of a block without the parts that are left out; items within an item are indented below
    it.
    """
    lines: list[str] = []
    depth = skip_depth = 0
    for token in block:
        if token.type in ("blockquote_open", "table_open"):
            skip_depth += 1
            left_out["quote" if token.type == "blockquote_open" else "table"] += 1
        elif token.type in ("blockquote_close", "table_close"):
            skip_depth -= 1
        elif token.type in ("list_item_open", "list_item_close"):
            depth += token.nesting
        elif token.type in ("fence", "code_block", "html_block"):
            left_out[_OMITTED_KINDS[token.type]] += 1
        elif token.type == "inline" and not skip_depth:
            lines.append("  " * max(0, depth - 2) + "- " * (depth > 1) + token.content.strip())
    return "\n".join(line for line in lines if line.strip())


def _is_before_list(tokens: Sequence[Token], end: int) -> bool:
    """Return True if a block is directly before a list."""
    return end < len(tokens) and tokens[end].type in ("bullet_list_open", "ordered_list_open", "fence")


def _is_statement(words: str, left_out: Counter[str], *, is_before_list: bool) -> bool:
    """Return True if the words are a statement, and no lead-in, rule or import."""
    if len(words) > MAX_STATEMENT_CHARS:
        left_out["long"] += 1
        return False
    return len(_WORD.findall(words)) > 1 and not (is_before_list and words.endswith(":"))


# paths, and what became of an item --------------------------------------------------------------------------------


def make_page_path(parts: Iterable[str]) -> str:
    """Return the path of a page; its statements are below it. parts: of the file path, the name last.

    >>> make_page_path(["CLAUDE.md"])
    'notes/claude-md'
    """
    return "/".join(["notes", *(slugify(part) for part in list(parts)[-4:])])


def make_section_path(page: str, headings: Sequence[str]) -> str:
    """Return the path of the part of a page that is below these headings."""
    return "/".join([page, *(slugify(heading) for heading in headings[-_MAX_HEADINGS:])])


def make_item_path(page: str, item: NoteItem) -> str:
    """Return the path of a new statement of a page.

    >>> make_item_path("notes/claude-md", NoteItem(("Testing",), "Run the tests before you push"))
    'notes/claude-md/testing/run-the-tests-before-you-d8ba'
    """
    text_hash = hashlib.sha256(normalise(item.text).encode()).hexdigest()[:_HASH_CHARS]
    return f"{make_section_path(page, item.headings)}/{slugify(item.text)}-{text_hash}"


def slugify(words: str) -> str:
    """Return words as a part of a path: letters and digits of any script, with dashes between; "x" if there
    are none.
    """
    joined = "-".join(_WORD.findall(normalise(words).replace("_", " ")))
    shortened = joined.encode()[:_SLUG_BYTES].decode("utf-8", "ignore")
    if len(shortened) < len(joined) and joined[len(shortened)] != "-":  # do not cut a word in half
        shortened = shortened.rpartition("-")[0] or shortened
    return shortened.strip("-") or "x"


def pair_changed(new_statements: Sequence[tuple[str, str]], old_statements: Mapping[str, str]) -> dict[int, str]:
    """Return the path of the old statement that each new one replaces, by the number of the new one.

    new_statements: (section path, words) that no old statement has. old_statements: path -> words of those
    that are gone. A new statement replaces an old one if both are below the same headings and share most of
    their words, or the new one replaces it by what it says. With more than MAX_COMPARED pairs none is compared: that is
    another page under an old name.
    """
    if len(new_statements) * len(old_statements) > MAX_COMPARED:
        return {}
    unpaired = dict(old_statements)
    paths_by_number = {}
    for number, (section, words) in enumerate(new_statements):
        likeness_by_path = [
            (_measure_likeness(words, old_words), path)
            for path, old_words in unpaired.items()
            if path.rpartition("/")[0] == section
        ]
        likeness, path = max(likeness_by_path, default=(0.0, ""))
        if likeness > 0.5:
            paths_by_number[number] = path
            del unpaired[path]
    return paths_by_number


def _measure_likeness(new_words: str, old_words: str) -> float:
    """Return the share of words that two statements have in common; 1.0 if the new one replaces the old one."""
    new_bag, old_bag = (frozenset(_WORD.findall(normalise(words))) for words in (new_words, old_words))
    if new_bag & old_bag and subject.replaces(new_words, old_words):
        return 1.0
    return len(new_bag & old_bag) / max(1, len(new_bag), len(old_bag))
