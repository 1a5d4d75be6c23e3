"""Ship: what waits in the outbox goes to the remote home. The one way off a machine that keeps nothing itself.

A delta is deleted after the home acknowledged its last byte, never before; one that the home cannot take is set aside,
never deleted. Nothing is held in memory but a block: what is sent is read from its file meanwhile. Standard library
only.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from perdure.capture import log, outbox, remote
from perdure.capture.files import locked, replace
from perdure.capture.remote import Extent, Line
from perdure.capture.rules import Rules
from perdure.errors import RemoteAway, RemoteFault, RemoteNonsense

PIECE_BYTES = 1 << 23  # sent in one request, unless one line is longer
_HEAD_BYTES = 1 << 20  # the first line of a delta is not longer
_PATH_CHARS = 4096  # of the name of a file are told
_WITNESS_BYTES = 4096  # of a transcript are compared before it goes on in the middle
_BLOCK_BYTES = 1 << 16  # in which line ends are looked for
_FAIR_S = 0.25  # a request that has less time is not begun: that it came too late would say nothing of the home
_EMITTED = ("emitted", "true")  # lines that an adapter made, whose place the home finds
_DONE = ("stored", "already")

Progress = Callable[[int], object]  # called for each delta that the home has taken, with its bytes


class Shipped(NamedTuple):
    """What was sent."""

    n_deltas: int = 0
    n_bytes: int = 0
    n_aside: int = 0  # that the home cannot take
    is_done: bool = True  # whether nothing was left for lack of time


class _Malformed(Exception):
    """The home takes this in no way, however often it is sent."""


class _Answer(NamedTuple):
    outcome: str  # stored, already, accepted, diverged, gap
    end: int  # behind the last byte of the source that the home holds
    generation: int


class _Stream(NamedTuple):
    """Bytes of a file that stand in a source."""

    extent: Extent
    from_offset: int  # of the first of them in the source

    def at(self, place: int) -> int:
        """The offset in the source of a place in the file."""
        return self.from_offset + place - self.extent.low


def ship(
    rules: Rules,
    line: Line | None = None,
    *,
    wait_s: float = 0.0,
    ends_s: float | None = None,
    piece_bytes: int = PIECE_BYTES,
    progress: Progress = lambda _: None,
) -> Shipped:
    """Send what waits, until it is sent or the time (of the monotonic clock) is over; returns what was sent.

    line: one that is open already. wait_s: for another process that is sending.
    Raises Busy when that takes longer, RemoteFault, ConfigFault, CredentialFault; what was not sent waits on.
    """
    found, tried, done = outbox.files(rules.home / "outbox"), set[Path](), Shipped()
    if not found:
        return done
    own = line or remote.line_of(rules.home, rules.remote)
    try:
        while fresh := [path for path in found if path not in tried]:
            with locked(rules.home / "outbox" / ".lock", wait_s=wait_s):
                round_ = _Round(rules, own, ends_s, piece_bytes, progress)
                done = round_.run(fresh, done)
            if not done.is_done:
                break
            tried.update(fresh)  # who posted meanwhile found us sending and left it to us
            found = outbox.files(rules.home / "outbox")
        if done.n_deltas:
            remote.is_there(rules.home)
    except RemoteFault as fault:
        remote.was_away(rules.home, after_s=fault.after_s, why=fault.detail)
        raise
    finally:
        if line is None:
            own.close()
    return done


class _Round:
    """The deltas of the outbox on their way, one after the other, over one connection."""

    def __init__(self, rules: Rules, line: Line, ends_s: float | None, piece_bytes: int, progress: Progress) -> None:
        self._rules = rules
        self._line = line
        self._ends_s = ends_s
        self._piece_bytes = piece_bytes
        self._progress = progress

    def run(self, paths: Sequence[Path], done: Shipped) -> Shipped:
        """Send them; returns what was done, added to what had been."""
        for path in paths:
            if self._left_s() <= 0:
                return done._replace(is_done=False)
            try:
                n_bytes = path.stat().st_size
                _Delta(path, self._rules, self._post).settle()
            except FileNotFoundError:
                continue  # another process moved it meanwhile
            except _Late:
                return done._replace(is_done=False)
            except (_Malformed, KeyError, TypeError, ValueError) as error:  # no delta of ours, or one that is damaged
                outbox.set_aside(path)
                log.note(self._rules.home, "set-aside", error=str(error), file=path.name)
                done = done._replace(n_aside=done.n_aside + 1)
                continue
            path.unlink(missing_ok=True)
            _progress_of(path).unlink(missing_ok=True)
            self._progress(n_bytes)
            done = done._replace(n_deltas=done.n_deltas + 1, n_bytes=done.n_bytes + n_bytes)
        return done

    def _left_s(self) -> float:
        return remote.TIMEOUT_S if self._ends_s is None else self._ends_s - time.monotonic()

    def _post(self, fields: Sequence[tuple[str, str]], stream: _Stream) -> Iterator[tuple[int, _Answer]]:
        """(place behind a piece, the answer to it) for each piece of the stream, until one is not taken as it is."""
        extent, size = stream.extent, self._piece_bytes
        low = extent.low
        while low < extent.high:
            high = _cut(extent, low, size)
            if self._left_s() <= _FAIR_S:
                raise _Late
            self._line.timeout_s = min(remote.TIMEOUT_S, self._left_s())
            placed = [*fields, ("from_offset", str(stream.at(low)))] if _EMITTED not in fields else fields
            said = self._line.ask("POST", "runs", query=placed, body=Extent(extent.path, low, high))
            if said.status == 413:
                if _cut(extent, low, 1) >= high:
                    raise _Malformed("a line is longer than the home takes")
                size = max(1, (high - low) // 2)
                continue
            answer = _answer(said)
            yield high, answer
            low = high


class _Late(Exception):
    """The time is over."""


class _Delta:
    """One delta on its way to the home."""

    def __init__(
        self,
        path: Path,
        rules: Rules,
        post: Callable[[Sequence[tuple[str, str]], _Stream], Iterator[tuple[int, _Answer]]],
    ) -> None:
        """Raises KeyError, TypeError or ValueError for what is no delta."""
        with path.open("rb") as file:
            head = file.readline(_HEAD_BYTES)
            low, high = file.tell(), file.seek(0, 2)
        if not head.endswith(b"\n"):
            raise ValueError("no head")
        self._path = path
        self._post = post
        self._head = dict(json.loads(head))
        self._fields = _fields(self._head, rules)
        self._session = self._head["origin"]["session"]
        self._from_offset: int | None = self._head["from_offset"]
        if self._from_offset is not None and (type(self._from_offset) is not int or self._from_offset < 0):
            raise ValueError("from_offset")
        self._stream = _Stream(Extent(path, low, high), self._from_offset or 0)

    def settle(self) -> None:
        """Bring it into the home, in whatever way that takes.

        Bytes that do not join what the home holds (their transcript was rewritten, or the home is an older one that
        was restored) bring in the whole transcript again; where that is gone, they become a source of their own. What
        was acknowledged is kept in any case.
        """
        if self._from_offset is None:
            self._put_lines()
            return
        answer = self._put(self._stream, keeps_place=True)
        if answer.outcome in _DONE:
            return
        if self._whole(answer) and self._put(self._stream).outcome in _DONE:
            return
        name = f"{self._session}~{_digest(self._stream.extent)[:12]}"
        alone = _Stream(self._stream.extent, 0)
        if self._put(alone, session=name).outcome not in _DONE:
            raise _Malformed("the home takes it nowhere")

    def _put_lines(self) -> None:
        """Post lines that an adapter emitted; the home puts them behind what it has."""
        fields = [*self._fields, ("session", self._session), _EMITTED]
        for _, answer in self._post(fields, self._stream):
            if answer.outcome not in (*_DONE, "accepted"):
                raise RemoteAway(f"session {self._session} is being written to")

    def _whole(self, answer: _Answer) -> bool:
        """Send the transcript that the delta came from again, if it is still there; whether the home took it."""
        path = Path(self._head["path"] or "")
        if not self._head["path"] or not path.is_file():
            return False
        try:
            end = _end_of_lines(path, path.stat().st_size)
            low = answer.end if answer.outcome == "gap" and self._agrees(path, answer.end, end) else 0
            return low < end and self._put(_Stream(Extent(path, low, end), low)).outcome in _DONE
        except (_Malformed, OSError, ValueError):  # it cannot be read, or is being rewritten at this moment
            return False

    def _agrees(self, path: Path, low: int, end: int) -> bool:
        """Whether the home has the lines that stand in the transcript before this place, so that it can go on there."""
        first = _end_of_lines(path, max(0, low - _WITNESS_BYTES))
        if low == 0 or low > end or first >= low:
            return low == 0
        witness = _Stream(Extent(path, first, low), first)
        return self._sent([*self._fields, ("session", self._session)], witness).outcome == "already"

    def _put(self, stream: _Stream, *, session: str = "", keeps_place: bool = False) -> _Answer:
        """The home's last answer to a stream, which was taken if that is one of _DONE.

        One from the beginning of its source that diverges is another generation: an earlier one that it continues, or
        the next.
        """
        named = [*self._fields, ("session", session or self._session)]
        answer = self._sent(named, stream, keeps_place=keeps_place)
        if answer.outcome != "diverged" or stream.from_offset:
            return answer
        latest = answer.generation
        for generation in (*range(latest - 1, -1, -1), latest + 1):
            answer = self._sent(named, stream, generation=generation)
            if answer.outcome in _DONE:
                return answer
        return answer

    def _sent(
        self,
        named: Sequence[tuple[str, str]],
        stream: _Stream,
        *,
        generation: int | None = None,
        keeps_place: bool = False,
    ) -> _Answer:
        """The home's answer to the last piece of a stream, or to the first that it does not take.

        keeps_place: go on behind the pieces that an earlier attempt has had acknowledged.
        """
        extent, last = stream.extent, _Answer("already", 0, generation or 0)
        low = extent.low
        if keeps_place:
            low, generation = _reached(self._path, extent, generation)
        while low < extent.high:
            fields = [*named, *([("generation", str(generation))] if generation is not None else [])]
            for high, last in self._post(fields, _Stream(Extent(extent.path, low, extent.high), stream.at(low))):
                if last.outcome == "accepted":
                    if not low < extent.low + last.end - stream.from_offset < high:
                        raise RemoteNonsense(f"accepted up to {last.end}")
                    low, generation = extent.low + last.end - stream.from_offset, last.generation
                    break
                if last.outcome not in _DONE:
                    return last
                if last.end < stream.at(high):
                    raise RemoteNonsense(f"{last.outcome} up to {last.end}")
                low = high
                if keeps_place and low < extent.high:
                    _keep_progress(self._path, low, last.generation)
        return last


def _fields(head: dict[str, Any], rules: Rules) -> list[tuple[str, str]]:
    """What the home is told of every piece of a delta, but for the session and the place in it."""
    from perdure.identity import project_of

    origin = head["origin"]
    told = {
        "runtime": origin["runtime"], "conversation": origin["conversation"], "cwd": origin["cwd"],
        "parent_session": origin["parent_session"], "fork": "true" if origin["fork"] else None,
        "project": project_of(origin["cwd"]), "path": head["path"] and head["path"][:_PATH_CHARS], "agent": rules.agent,
    }  # fmt: skip
    found = [(name, value) for name, value in told.items() if value is not None]
    found += [("tag", tag) for tag in head["tags"]]
    if not all(isinstance(value, str) for _, value in found) or not isinstance(origin["session"], str):
        raise TypeError("a field is no text")
    return found


def _answer(said: remote.Answer) -> _Answer:
    """What the home answers to a piece. Raises _Malformed when it will never take it, RemoteNonsense for no answer."""
    if said.status == 400 and said.code:
        raise _Malformed(said.code)
    if said.status not in (202, 409):
        raise RemoteNonsense(f"status {said.status} to a capture")
    body = said.body
    outcome = said.code if said.status == 409 else body.get("outcome")
    end, generation = body.get("accepted_up_to"), body.get("generation")
    known = ("diverged", "gap") if said.status == 409 else ("stored", "already", "accepted")
    if said.status == 409 and outcome not in known:
        raise RemoteAway(f"conflict: {outcome}")
    if outcome not in known or type(end) is not int or type(generation) is not int:
        raise RemoteNonsense(f"status {said.status} without an outcome")
    return _Answer(str(outcome), end, generation)


# how far an attempt came ----------------------------------------------------------------------------------------


def _progress_of(path: Path) -> Path:
    return path.with_suffix(".sent")


def _reached(path: Path, extent: Extent, generation: int | None) -> tuple[int, int | None]:
    """(place in the file behind what was acknowledged, its generation); its beginning when nothing was."""
    try:
        low, known = json.loads(_progress_of(path).read_bytes())
        if extent.low <= int(low) < extent.high:
            return int(low), int(known)
    except (OSError, ValueError, TypeError):
        pass  # no attempt before this one, or none that is worth anything: bytes that are sent twice are kept once
    return extent.low, generation


def _keep_progress(path: Path, low: int, generation: int) -> None:
    replace(_progress_of(path), json.dumps([low, generation]).encode(), sync=False)


# lines of a file ------------------------------------------------------------------------------------------------


def _cut(extent: Extent, low: int, size: int) -> int:
    """Where a piece that begins at `low` ends: behind the last line that ends within `size` bytes, or the first."""
    high = min(extent.high, low + size)
    if high == extent.high:
        return high
    with extent.path.open("rb") as file:
        at = high
        while at > low:
            start = max(low, at - _BLOCK_BYTES)
            file.seek(start)
            found = file.read(at - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            at = start
        at = high
        while at < extent.high:
            file.seek(at)
            block = file.read(min(_BLOCK_BYTES, extent.high - at))
            found = block.find(b"\n")
            if found >= 0:
                return at + found + 1
            at += len(block) or extent.high
    return extent.high


def _end_of_lines(path: Path, high: int) -> int:
    """Where the last line ends that ends in the first `high` bytes of a file."""
    with path.open("rb") as file:
        at = high
        while at > 0:
            start = max(0, at - _BLOCK_BYTES)
            file.seek(start)
            found = file.read(at - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            at = start
    return 0


def _digest(extent: Extent) -> str:
    digest = hashlib.sha256()
    for block in extent.blocks():
        digest.update(block)
    return digest.hexdigest()
