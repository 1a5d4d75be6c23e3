"""Find the images of captured turns by the text around and in them, and those that the agent made by their prompts. The
index holds their type, their size and the text that was read in them, never their bytes.

The text around is what was said and done just before and after in the same run: the words of a message, and what
a tool was called for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from perdure import text
from perdure.formats.call_text import describe_calls
from perdure.index.encoding import PICTURE_KIND, from_ms
from perdure.index.store import IndexConnection
from perdure.regex import lazy_re

N_TURNS_AROUND = 4  # before and after an image, as far as words are looked for
_MAX_CHARS = 4_000  # of the text of one turn
_WITH_FACET = "SELECT turn_facet.turn FROM facet JOIN turn_facet ON facet = facet.id WHERE facet.kind"
_GENERATED = f"""SELECT chunk.turn FROM turn JOIN chunk ON chunk.turn = turn.id JOIN chunk_text USING (id)
    WHERE turn.role = 'tool' AND substr(text, 1, 16) = 'Generated image '
      AND turn.run IN (SELECT run FROM turn WHERE id IN ({_WITH_FACET} = 'tool' AND facet.value = 'image_generate'))"""
_IMAGE_TURNS = f"""SELECT turn.id, turn_id, turn.run, turn.offset, turn.role, turn.stated_ms, run.run_id,
      conversation.value, project.value, runtime.value
    FROM turn JOIN run ON run.id = turn.run
      JOIN name AS conversation ON conversation.id = run.conversation JOIN name AS project ON project.id = run.project
      JOIN name AS runtime ON runtime.id = run.runtime
    WHERE run.user = ? AND NOT turn.abandoned AND turn.id IN ({_WITH_FACET} = 'image' UNION {_GENERATED})
    ORDER BY coalesce(turn.stated_ms, 0) DESC, turn.id DESC"""
_LABEL = lazy_re(r"\[.*/.* .* bytes\]", re.DOTALL)
_GENERATED_TEXT = lazy_re(r"Generated image (.{1,4000}? by [^\s:]{1,200}:[^\s:]{1,200}): (.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CapturedImage:
    """The images of one turn."""

    turn_id: str
    run_id: str
    session: str  # the conversation
    project: str | None
    runtime: str
    role: str
    stated_at: datetime | None
    labels: tuple[str, ...]  # type and size of each: "image/png 2048 bytes"; of a generated one its path and model, too
    text: str  # the words of its own turn, masked; of a generated one its prompt
    read: str  # the words that were read in them, masked; "" before they were read
    before: str  # the nearest words before it
    after: str  # the nearest words after it


def iter_images(index: IndexConnection, user: str, words: Sequence[str] = ()) -> Iterator[CapturedImage]:
    """Yield the user's turns with images, and those in which the agent made one, newest first; with words, those with
    all of them in the text around or in the images, or in the prompt.

    Words are compared without case, as parts of the text.
    """
    folded_words = [word.casefold() for word in words]
    for turn, turn_id, run, offset, role, stated_ms, *names in index.select(
        _IMAGE_TURNS, index.find_name("user", user)
    ):
        texts_before = _list_texts_around(index, run, offset, is_before=True)
        texts_after = _list_texts_around(index, run, offset, is_before=False)
        own_text, picture_text = _read_text(index, turn), _read_picture_text(index, turn)
        labels = _list_labels(index, turn)
        if generated := _read_generated(index, turn):  # its prompt says what it is, its neighbours do not
            (label, own_text), texts_before, texts_after = generated, [], []
            labels = (label,)
        all_text = "\n".join(
            (*texts_before, *(labels if generated else ()), own_text, picture_text, *texts_after)
        ).casefold()
        if not all(word in all_text for word in folded_words):
            continue
        run_id, conversation, project, runtime = names
        yield CapturedImage(
            turn_id,
            run_id,
            conversation,
            project or None,
            runtime,
            role,
            from_ms(stated_ms),
            labels,
            own_text,
            picture_text,
            next(filter(None, texts_before), ""),
            next(filter(None, texts_after), ""),
        )


def _list_texts_around(index: IndexConnection, run: int, offset: int, *, is_before: bool) -> list[str]:
    """Return the texts of the turns before or after a place of a run, the nearest first."""
    test, order = ("<", "DESC") if is_before else (">", "ASC")
    query = f"SELECT id FROM turn WHERE run = ? AND offset {test} ? ORDER BY offset {order} LIMIT ?"
    return [_read_text(index, turn) for (turn,) in index.select(query, run, offset, N_TURNS_AROUND)]


def _read_text(index: IndexConnection, turn: int) -> str:
    """Return what was said in a turn, and in words what it called."""
    query = """SELECT kind.value, text FROM chunk JOIN chunk_text USING (id) JOIN name AS kind ON kind.id = chunk.kind
        WHERE turn = ? AND kind.value IN ('text', 'call') ORDER BY n"""
    pieces = (describe_calls(words) if kind == "call" else words for kind, words in index.select(query, turn))
    return text.clip("\n".join(pieces), _MAX_CHARS)


def _read_picture_text(index: IndexConnection, turn: int) -> str:
    """Return what was read in the images of a turn."""
    query = """SELECT text FROM chunk JOIN chunk_text USING (id) JOIN name AS kind ON kind.id = chunk.kind
        WHERE turn = ? AND kind.value = ? ORDER BY n"""
    return text.clip("\n".join(words for (words,) in index.select(query, turn, PICTURE_KIND)), _MAX_CHARS)


def _read_generated(index: IndexConnection, turn: int) -> tuple[str, str] | None:
    """Return (path, type, size and model; the prompt) of an image that the agent made; None for any other."""
    query = "SELECT text FROM chunk JOIN chunk_text USING (id) WHERE turn = ? ORDER BY n LIMIT 1"
    for (words,) in index.select(query, turn):
        if match := _GENERATED_TEXT.match(words):
            return match[1], text.clip(match[2], _MAX_CHARS)
    return None


def _list_labels(index: IndexConnection, turn: int) -> tuple[str, ...]:
    query = """SELECT text FROM chunk JOIN chunk_text USING (id)
        WHERE turn = ? AND substr(text, 1, 1) = '[' ORDER BY n"""
    return tuple(label.strip("[]") for (label,) in index.select(query, turn) if _LABEL.fullmatch(label))
