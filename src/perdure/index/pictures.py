"""The rows of pictures: which are not read, and the chunks of the texts that were read in them.

A turn's pictures are listed when it is projected. Their texts come later, from the cache or from an engine, as chunks
of kind `picture` behind the turn's others, in the order of its pictures: so the index does not depend on when a
picture was read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from perdure.index.encoding import PICTURE_KIND
from perdure.index.projection import split_picture_text
from perdure.index.store import IndexConnection
from perdure.index.write import ChunkScope, delete_chunks, insert_chunk
from perdure.pictures.store import PictureText


class PictureCounts(NamedTuple):
    """How many different pictures the turns of an owner have, or of all."""

    n_read: int
    n_unread: int
    n_faulty: int  # of those read: the engine could not open them


class UnreadPicture(NamedTuple):
    """A picture without the text of an engine, and one turn that has it."""

    digest: str
    captured_in: str  # the run whose bytes hold it
    offset: int  # of the turn's first line


def count_pictures(index: IndexConnection, user: str | None = None) -> PictureCounts:
    """Count the pictures of a user, or of all."""
    query = """SELECT count(DISTINCT CASE WHEN tag <> '' THEN digest END),
        count(DISTINCT CASE WHEN tag = '' THEN digest END), count(DISTINCT CASE WHEN fault <> '' THEN digest END)
      FROM picture JOIN turn ON turn.id = picture.turn JOIN run ON run.id = turn.run
      WHERE run.user = ?1 OR ?1 IS NULL"""
    number = None if user is None else index.find_name("user", user) or 0
    return PictureCounts._make(index.select(query, number)[0])


def list_unread(index: IndexConnection, tag: str, *, limit: int) -> list[UnreadPicture]:
    """Return pictures that this engine has not read, those of the newest turns first."""
    query = """SELECT digest, captured_in, content_offset FROM (
        SELECT digest, run.captured_in, turn.content_offset, coalesce(turn.stated_ms, 0) AS stated_ms,
          row_number() OVER (PARTITION BY digest ORDER BY coalesce(turn.stated_ms, 0) DESC, turn.id) AS place
        FROM picture JOIN turn ON turn.id = picture.turn JOIN run ON run.id = turn.content_run WHERE tag <> ?) AS unread
      WHERE place = 1 ORDER BY stated_ms DESC, digest LIMIT ?"""
    return [UnreadPicture(*row) for row in index.select(query, tag, limit)]


def drop_faults(index: IndexConnection) -> list[str]:
    """Mark the pictures that could not be read as unread; return their digests. Call it in a transaction."""
    query = "UPDATE picture SET tag = '', fault = '' WHERE fault <> '' RETURNING digest"
    return [digest for (digest,) in index.select(query)]


def list_turns(index: IndexConnection, digest: str) -> list[int]:
    """Return the turns that have this picture."""
    return [turn for (turn,) in index.select("SELECT DISTINCT turn FROM picture WHERE digest = ?", digest)]


def list_unshown_turns(index: IndexConnection) -> list[int]:
    """Return the turns with a picture for which no engine's text is in the index."""
    return [turn for (turn,) in index.select("SELECT DISTINCT turn FROM picture WHERE tag = ''")]


def list_digests(index: IndexConnection, turn: int) -> list[str]:
    """Return the pictures of a turn, in their order."""
    return [digest for (digest,) in index.select("SELECT digest FROM picture WHERE turn = ? ORDER BY n", turn)]


def write_texts(index: IndexConnection, turn: int, texts: Mapping[str, PictureText]) -> None:
    """Make the chunks of a turn's pictures anew. texts: of its pictures that were read. Call it in a transaction."""
    delete_chunks(index, turn, kind=PICTURE_KIND)
    updates = [(picture.tag, picture.fault, turn, digest) for digest, picture in texts.items()]
    index.db.executemany("UPDATE picture SET tag = ?, fault = ? WHERE turn = ? AND digest = ?", updates)
    read_texts = [texts[digest].text for digest in list_digests(index, turn) if digest in texts]
    _insert_chunks(index, turn, [text for text in read_texts if text.strip()])
    index.write_counts()


def _insert_chunks(index: IndexConnection, turn: int, texts: Sequence[str]) -> None:
    """Insert the chunks of these texts, with the owner, role and names of the turn's first chunk, which says that it
    has a picture.
    """
    query = """SELECT turn_id, chunk.run, role.id, chunk.stated_ms, chunk.user, chunk.project, chunk.conversation,
        chunk.runtime, chunk.machine, chunk.agent, (SELECT max(n) + 1 FROM chunk WHERE turn = ?1)
      FROM chunk JOIN turn ON turn.id = chunk.turn JOIN name AS role ON role.id = chunk.role
      WHERE chunk.turn = ?1 ORDER BY chunk.n LIMIT 1"""
    for turn_id, run, role, stated_ms, *numbers, first in index.select(query, turn):
        tags = index.select("SELECT tag FROM run_tag WHERE run = ? ORDER BY tag", run)
        user, project, conversation, runtime, machine, agent = numbers
        scope = ChunkScope(user, project, conversation, runtime, machine, agent, tuple(tag for (tag,) in tags))
        for chunk in split_picture_text(turn_id, first, texts):
            insert_chunk(index, run, turn, chunk, scope, role, stated_ms)


def list_removed(index: IndexConnection) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (all pictures that left the index with a turn, those of them that no turn has any more)."""
    query = "SELECT digest, EXISTS (SELECT 1 FROM picture WHERE picture.digest = gone_picture.digest) FROM gone_picture"
    rows = index.select(query)
    return tuple(digest for digest, _ in rows), tuple(digest for digest, is_used in rows if not is_used)


def clear_removed(index: IndexConnection, digests: Sequence[str]) -> None:
    """Clear the records of pictures whose texts the cache has deleted."""
    with index.begin_write() as db:
        db.executemany("DELETE FROM gone_picture WHERE digest = ?", [(digest,) for digest in digests])
