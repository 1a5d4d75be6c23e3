"""What a person typed, told apart from what was pasted, quoted or put there by a program. Pure.

Only typed text may count as said by the owner, so every doubt goes to `pasted` or to a machine turn.
Splitting loses nothing but blank space between the parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from perdure.capture.events import MACHINE_OPENINGS, SUMMARY_OPENINGS
from perdure.regex import lazy_re
from perdure.types import Part, PartKind

MIN_MACHINE_LINES = 3  # fewer log-like lines in a row may have been typed
_SHOWN_CHARS = 200  # of a line that are matched

_TAGS = (
    "system-reminder|environment_context|hook_context|user_instructions|ide_selection|ide_opened_file|"
    "ide_diagnostics|skill|context|file|persisted-output|untrusted_context|session_context|state_snapshot"
)
_OPENING = lazy_re(rf"<({_TAGS})(?: [^<>\n]{{0,500}})?>")
_PASTED_MARK = lazy_re(r"(\[Pasted text[^\]\n]{0,80}\])")
_SIGN = lazy_re(r"[`~>\n<]|\[Pasted")
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


def is_machine(text: str) -> bool:
    """Say whether a message in a person's place was written by a program, judged by how it opens.

    Blocks that clients put around typed words do not count: if nothing else remains, it is a machine's.
    """
    start = text.lstrip()
    if start.startswith(MACHINE_OPENINGS) or is_summary(start):
        return True
    if not start.startswith("<"):
        return False
    return not any(kind == "text" and piece.strip() for kind, piece in _tagged(start))


def is_summary(text: str) -> bool:
    """Say whether a message is a client's own summary of what it compacted."""
    return text.lstrip().startswith(SUMMARY_OPENINGS)


def spoken(text: str) -> list[Part]:
    """Split one message of a person into its typed and its pasted parts, in order.

    >>> [(p.kind, p.text) for p in spoken("why?\\n> quoted\\nsee")]
    [('text', 'why?'), ('pasted', '> quoted'), ('text', 'see')]
    """
    if not text.strip():
        return []
    if _SIGN.search(text) is None:
        return [Part("text", text)]
    pieces = [piece for kind, block in _tagged(text) for piece in _split(kind, block)]
    parts = []
    for kind, run in groupby(pieces, key=lambda piece: piece[0]):
        joined = "\n".join(piece.strip("\r\n") for _, piece in run)
        if joined.strip():
            parts.append(Part(kind, joined))
    return parts


def _split(kind: PartKind, block: str) -> Iterator[tuple[PartKind, str]]:
    """Yield the pieces of one block; what is pasted already stays whole."""
    if kind == "pasted":
        yield kind, block
        return
    for label, piece in _by_line(block):
        if label == "pasted" or "[Pasted" not in piece:
            yield label, piece
            continue
        for i, bit in enumerate(_PASTED_MARK.split(piece)):
            if bit.strip():
                yield ("pasted" if i % 2 else "text"), bit


def _tagged(text: str) -> Iterator[tuple[PartKind, str]]:
    """Yield the text in order, whole blocks that a client inserts as `pasted`, what is between as `text`.

    Linear in the text: a tag that is never closed is looked for once.
    """
    start = at = 0
    unclosed: set[str] = set()
    while match := _OPENING.search(text, at):
        tag = match[1]
        end = -1 if tag in unclosed else text.find(f"</{tag}>", match.end())
        if end < 0:
            unclosed.add(tag)
            at = match.end()
            continue
        at = end + len(tag) + 3
        if match.start() > start:
            yield "text", text[start : match.start()]
        yield "pasted", text[match.start() : at]
        start = at
    if start < len(text):
        yield "text", text[start:]


def _by_line(text: str) -> Iterator[tuple[PartKind, str]]:
    """Yield runs of lines: fenced, quoted or log-like ones as `pasted`, the others as `text`."""
    rows = text.split("\n")
    labels = _machine_runs(rows, _fenced(rows))
    at = 0
    for pasted, run in groupby(labels):
        n_rows = sum(1 for _ in run)
        yield ("pasted" if pasted else "text"), "\n".join(rows[at : at + n_rows])
        at += n_rows


def _fenced(rows: list[str]) -> list[bool]:
    """Say for each line whether it is inside a code fence (an open one lasts to the end) or quoted with >."""
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


def _machine_runs(rows: list[str], labels: list[bool]) -> list[bool]:
    """Return the labels with every run of at least MIN_MACHINE_LINES log-like lines set too.

    An indented line inside a run belongs to it (source lines of a stack trace) but does not count.
    """
    result = list(labels)
    start = n_hits = 0
    for i in range(len(rows) + 1):
        row = "" if i == len(rows) or labels[i] else rows[i][:_SHOWN_CHARS]
        if _MACHINE_LINE.match(row):
            start = i if n_hits == 0 else start
            n_hits += 1
        elif not (n_hits and row.startswith(("   ", "\t"))):
            if n_hits >= MIN_MACHINE_LINES:
                result[start:i] = [True] * (i - start)
            n_hits = 0
    return result
