"""A prompt and what the agent said to it, found by the session and the time at which something was put beside it; and
one turn's words, to be quoted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile

from perdure.index import visible
from perdure.index.store import Connection
from perdure.index.values import instant, ms
from perdure.types import Principal

NEAR = timedelta(seconds=60)  # so far apart may a prompt's time and that of what was put beside it lie
LONGEST = timedelta(days=1)  # of an answer
_MOST_TURNS = 500  # of an answer
_MOST_PIECES = 40  # of a turn that is quoted


@dataclass(frozen=True, slots=True)
class Exchange:
    """What was asked, and what was said and done upon it."""

    prompt: str
    answer: str  # the agent's words, then the input of its calls; "" until it said something
    ended: bool  # the next prompt is there
    last_at: datetime | None  # when the last of it was said


@dataclass(frozen=True, slots=True)
class Quoted:
    """One turn, to be quoted."""

    turn_id: str
    role: str
    author: str
    at: datetime | None
    runtime: str
    machine: str
    said: str  # masked; of a very long one its beginning


@dataclass(frozen=True, slots=True)
class _Turn:
    number: int
    role: str
    author: str
    stated_ms: int


def exchange(index: Connection, user: str, runtime: str, session: str, at: datetime) -> Exchange | None:
    """What was asked in a session at a moment, and what was answered; None where nothing was asked then."""
    with index.reading():
        turns = _turns(index, user, runtime, session, at)
        asked = [turn for turn in turns if turn.role == "user" and abs(turn.stated_ms - _ms(at)) <= _ms_of(NEAR)]
        if not asked:
            return None
        prompt = min(asked, key=lambda turn: (abs(turn.stated_ms - _ms(at)), turn.number))
        after = turns[turns.index(prompt) + 1 :]
        answer = list(takewhile(lambda turn: turn.author != "person", after))
        own = [turn.number for turn in answer if turn.role == "assistant"]
        return Exchange(
            "\n".join(_texts(index, [prompt.number], "text")),
            "\n".join([*_texts(index, own, "text"), *_texts(index, own, "call")]),
            len(answer) < len(after), instant(answer[-1].stated_ms) if answer else None,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asked:
    """A message that stands in a session."""

    turn_id: str
    at: datetime
    text: str  # its beginning, masked
    project: str | None


def asked(
    index: Connection, user: str, runtime: str, session: str, *, since_at: datetime, until_at: datetime
) -> list[Asked]:
    """What was asked in a session between two moments, in order; of runs that have anything of then alone."""
    query = """SELECT turn_id, stated_ms, nullif(project.value, ''), (SELECT text FROM chunk JOIN chunk_text USING (id)
            WHERE chunk.turn = turn.id AND chunk.kind = ? ORDER BY n LIMIT 1)
        FROM run JOIN turn ON turn.run = run.id JOIN name AS project ON project.id = run.project
        WHERE run.user = ? AND run.runtime = ? AND run.session = ? AND run.thread = ''
          AND run.started_ms <= ? AND run.ended_ms >= ? AND role = 'user' AND NOT is_summary
          AND stated_ms BETWEEN ? AND ? ORDER BY generation, offset"""
    who = index.known("kind", "text"), index.known("user", user), index.known("runtime", runtime), session
    since, until = _ms(since_at), _ms(until_at)
    rows = index.rows(query, *who, until, since, since, until)
    return [Asked(name, datetime.fromtimestamp(at / 1000, UTC), text or "", where) for name, at, where, text in rows]


def nearest(found: Sequence[Asked], at: datetime) -> Asked | None:
    """The message beside which something was put at a moment; None where none is near."""
    near = [one for one in found if abs(one.at - at) <= NEAR]
    return min(near, key=lambda one: abs(one.at - at), default=None)


def pieces(index: Connection, user: str, turn_id: str) -> list[str]:
    """The words of one turn in their pieces; none where there is no such turn of this user."""
    query = """SELECT text FROM chunk_text JOIN chunk USING (id) JOIN turn ON turn.id = chunk.turn
        WHERE turn.turn_id = ? AND chunk.user = ? ORDER BY chunk.n"""
    return [text for (text,) in index.rows(query, turn_id, index.known("user", user))]


def quoted(index: Connection, principal: Principal, turn_id: str) -> Quoted | None:
    """One turn with who said it, when and where; None where there is none that may be read."""
    query = f"""SELECT turn.id, turn.role, turn.author, turn.stated_ms, runtime.value, machine.value FROM turn
        JOIN run ON run.id = turn.run JOIN name AS runtime ON runtime.id = run.runtime
        JOIN name AS machine ON machine.id = run.machine
        WHERE turn.turn_id = ? AND {visible.of(index, principal).runs()}"""
    with index.reading():
        for number, role, author, stated_ms, runtime, machine in index.rows(query, turn_id):
            words = """SELECT text FROM chunk_text JOIN chunk USING (id) WHERE turn = ? ORDER BY n LIMIT ?"""
            said = "\n".join(text for (text,) in index.rows(words, number, _MOST_PIECES))
            return Quoted(turn_id, role, author, instant(stated_ms), runtime, machine, said)
    return None


def _turns(index: Connection, user: str, runtime: str, session: str, at: datetime) -> list[_Turn]:
    """The turns of a session from shortly before a moment on, in order."""
    query = """SELECT turn.id, role, author, stated_ms FROM turn JOIN run ON run.id = turn.run
        WHERE run.user = ? AND run.runtime = ? AND run.session = ? AND run.thread = '' AND NOT is_summary
          AND stated_ms BETWEEN ? AND ? ORDER BY generation, offset LIMIT ?"""
    who = index.known("user", user), index.known("runtime", runtime), session
    return [_Turn(*row) for row in index.rows(query, *who, _ms(at - NEAR), _ms(at + LONGEST), _MOST_TURNS)]


def _texts(index: Connection, turns: Sequence[int], kind: str) -> list[str]:
    query = """SELECT text FROM chunk_text JOIN chunk USING (id) WHERE turn = ? AND kind = ? ORDER BY n"""
    number = index.known("kind", kind)
    return [text for turn in turns for (text,) in index.rows(query, turn, number)]


def _ms(at: datetime) -> int:
    found = ms(at)
    assert found is not None
    return found


def _ms_of(span: timedelta) -> int:
    return span // timedelta(milliseconds=1)
