"""Separate text that a person typed from text that was pasted, quoted or written by a program. Pure.

A whole message is judged by how it begins, the blocks and lines inside it by their shape. Only typed text
may count as the owner's words, so every doubtful text becomes `pasted` or a machine's turn. Splitting
loses nothing but white space between the parts. No statement is understood here: `memories` does that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from perdure.capture.events import MACHINE_OPENINGS, SUMMARY_OPENINGS, is_command
from perdure.regex import lazy_re
from perdure.text import one_line
from perdure.types import Part, PartKind

MIN_MACHINE_LINES = 3  # fewer log-like lines in a row may have been typed
_MAX_MATCHED_CHARS = 200  # of a line that are matched
_MIN_REQUEST_LETTERS = 6  # "3", "ok" and "y" name nothing
_MIN_REQUEST_WORDS = 2

_TAGS = (
    "system-reminder|environment_context|hook_context|user_instructions|ide_selection|ide_opened_file|"
    "ide_diagnostics|skill|context|file|persisted-output|untrusted_context|session_context|state_snapshot|hook_result|"
    "qwen:user-prompt-submit-context"
)
_OPENING_TAG = lazy_re(rf"<({_TAGS})(?: [^<>\n]{{0,500}})?>")
_FIELD_MARK = lazy_re(r"\[\[ ## \w+ ## \]\]")  # of a program's prompt template
BUILT_IN_COMMANDS = lazy_re(  # slash commands of the client itself; any other is a skill
    r"add-dir|agents|bashes|bug|clear|compact|config|context|copy|cost|doctor|effort|exit|export|fast|help|hooks|ide|"
    r"install-github-app|login|logout|mcp|memory|model|output-style|permissions|plugin|quit|release-notes|rename|resume|"
    r"rewind|sandbox|settings|skills|status|statusline|tasks|terminal-setup|theme|todos|upgrade|usage|vim"
)
_PASTED_MARK = lazy_re(r"(\[Pasted text[^\]\n]{0,80}\])")
_PASTE_SIGN = lazy_re(r"[`~>\n<]|\[Pasted")
_FENCE = lazy_re(r" {0,3}(`{3,}|~{3,})")
_MACHINE_LINE = lazy_re(
    r"""\s*(?:
      at\s\S+.*[:(]\d
    | File\s".+",\sline\s\d
    | Traceback\s\(most\srecent
    | \[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d
    | \[?\d\d:\d\d:\d\d\b
    | \[?(?:ERROR|WARN(?:ING)?|INFO|DEBUG|TRACE|FATAL)\b[\]:\s]
    | (?:npm|yarn)\s(?:ERR!|WARN|error)
    | [\w.]+(?:Error|Exception)(?::|$)
    | goroutine\s\d|panic:\s|thread\s'
    | (?:\+\+\+|---|@@)\s
    | (?:[$%]|\w+@[\w.-]+[:~]\S*[$\#])\s
    | [\w./-]+\.\w+:\d+[:\s]
    | [{}\[\]();,]+\s*$
    )""",
    re.VERBOSE,
)


# whole messages -----------------------------------------------------------------------------------------------


def is_machine_text(text: str) -> bool:
    """Return True if a program wrote a message in a person's place, judged by how it begins.

    Blocks that clients put around typed text do not count: if nothing else remains, it is a machine's.
    """
    start = text.lstrip()
    if start.startswith(MACHINE_OPENINGS) or is_client_summary(start):
        return True
    if not start.startswith("<"):
        return False
    return not any(kind == "text" and piece.strip() for kind, piece in _split_tagged_blocks(start))


def is_client_notice(text: str) -> bool:
    """Return True if a client tells its model something in a program's text: rules, skills, output of its own commands.

    The other texts of programs tell of the work: summaries, plans, tasks and reports of sub-agents.

    >>> is_client_notice("# AGENTS.md instructions for /w"), is_client_notice("Implement the following plan: …")
    (True, False)
    """
    start = text.lstrip()
    return start.startswith(("<", *MACHINE_OPENINGS)) and not start.startswith(_REPORT_OPENINGS)


_REPORT_OPENINGS = (  # of texts that tell of the work, though a client wrote them
    "<task-notification",
    "<subagent_notification",
    "<teammate-message",
    "The following is the Codex agent history",
)


def is_client_summary(text: str) -> bool:
    """Return True if a message is a client's own summary of the messages it compacted."""
    return text.lstrip().startswith(SUMMARY_OPENINGS)


def strip_wrappers(text: str, n_chars: int) -> str:
    """Return the typed text of a message on one line; "" if a program wrote it, or if it is a command of the client.

    >>> strip_wrappers("<environment_context>\\n<cwd>/w</cwd>\\n</environment_context>hello", 80)
    'hello'
    """
    text = _FIELD_MARK.sub(" ", text).lstrip()
    is_for_client = is_command(text) and BUILT_IN_COMMANDS.fullmatch(text.split()[0][1:])
    if is_for_client or is_machine_text(text):
        return ""
    return one_line(" ".join(part.text for part in split_typed_text(text) if part.kind == "text"), n_chars)


def find_request(prompt: str, n_chars: int) -> str:
    """Return what the person asked in a message, on one line; "" if the message names no request.

    A message that says too little to name a conversation names none. This is the only rule for titles.

    >>> find_request("[[ ## user_query ## ]] Why does the build fail?", 80), find_request("3", 80)
    ('Why does the build fail?', '')
    """
    request = strip_wrappers(prompt, n_chars)
    n_letters = sum(character.isalpha() for character in request)
    is_spaced = request.isascii()  # a script without spaces says much in one word
    has_words = len(request.split()) >= _MIN_REQUEST_WORDS or not is_spaced
    return request if has_words and n_letters >= (_MIN_REQUEST_LETTERS if is_spaced else 2) else ""


# parts of one message -----------------------------------------------------------------------------------------


def split_typed_text(text: str) -> list[Part]:
    r"""Split one message of a person into its typed and its pasted parts, in order.

    >>> [(p.kind, p.text) for p in split_typed_text("why?\n> quoted\nsee")]
    [('text', 'why?'), ('pasted', '> quoted'), ('text', 'see')]
    """
    if not text.strip():
        return []
    if _PASTE_SIGN.search(text) is None:
        return [Part("text", text)]
    pieces = [piece for kind, block in _split_tagged_blocks(text) for piece in _split_block(kind, block)]
    parts = []
    for kind, group in groupby(pieces, key=lambda piece: piece[0]):
        text_of_group = "\n".join(piece.strip("\r\n") for _, piece in group)
        if text_of_group.strip():
            parts.append(Part(kind, text_of_group))
    return parts


def _split_block(kind: PartKind, block: str) -> Iterator[tuple[PartKind, str]]:
    """Yield the pieces of one block; a pasted block stays whole."""
    if kind == "pasted":
        yield kind, block
        return
    for label, piece in _split_by_line(block):
        if label == "pasted" or "[Pasted" not in piece:
            yield label, piece
            continue
        for i, segment in enumerate(_PASTED_MARK.split(piece)):
            if segment.strip():
                yield ("pasted" if i % 2 else "text"), segment


def _split_tagged_blocks(text: str) -> Iterator[tuple[PartKind, str]]:
    """Yield the text in order: whole blocks that a client inserts as `pasted`, the text between them as `text`.

    Linear in the text: a tag that is never closed is searched once.
    """
    start = offset = 0
    unclosed: set[str] = set()
    while match := _OPENING_TAG.search(text, offset):
        tag = match[1]
        end = -1 if tag in unclosed else text.find(f"</{tag}>", match.end())
        if end < 0:
            unclosed.add(tag)
            offset = match.end()
            continue
        offset = end + len(tag) + 3
        if match.start() > start:
            yield "text", text[start : match.start()]
        yield "pasted", text[match.start() : offset]
        start = offset
    if start < len(text):
        yield "text", text[start:]


def _split_by_line(text: str) -> Iterator[tuple[PartKind, str]]:
    """Yield runs of lines: fenced, quoted or log-like ones as `pasted`, the others as `text`."""
    rows = text.split("\n")
    labels = _mark_machine_runs(rows, _mark_fenced_rows(rows))
    row_index = 0
    for is_pasted, group in groupby(labels):
        n_rows = sum(1 for _ in group)
        yield ("pasted" if is_pasted else "text"), "\n".join(rows[row_index : row_index + n_rows])
        row_index += n_rows


def _mark_fenced_rows(rows: list[str]) -> list[bool]:
    """Return for each line True if it is quoted with > or in a code fence; an open fence lasts to the end."""
    labels = []
    fence = ""
    for row in rows:
        mark = _FENCE.match(row)
        if fence:
            labels.append(True)
            if mark and mark[1].startswith(fence) and row.strip() == mark[1]:
                fence = ""
        else:
            fence = mark[1] if mark else ""
            labels.append(bool(mark) or row.lstrip().startswith(">"))
    return labels


def _mark_machine_runs(rows: list[str], labels: list[bool]) -> list[bool]:
    """Return the labels, with every run of at least MIN_MACHINE_LINES log-like lines set too.

    An indented line inside a run belongs to it (source lines of a stack trace) but does not count.
    """
    new_labels = list(labels)
    start = n_hits = 0
    for i in range(len(rows) + 1):
        row = "" if i == len(rows) or labels[i] else rows[i][:_MAX_MATCHED_CHARS]
        if _MACHINE_LINE.match(row):
            start = i if n_hits == 0 else start
            n_hits += 1
        elif not (n_hits and row.startswith(("   ", "\t"))):
            if n_hits >= MIN_MACHINE_LINES:
                new_labels[start:i] = [True] * (i - start)
            n_hits = 0
    return new_labels
