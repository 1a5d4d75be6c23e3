"""Deliver the outbox to the remote home: the only way off a machine that keeps nothing itself.

A delta is deleted after the home acknowledged its last byte, never before; one that the home cannot take
is set aside, never deleted. Only one block is in memory: each delta is read from its file while it is
sent. Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from perdure import log
from perdure.capture import credential, enqueue, remote, settle
from perdure.capture.policy import CaptureRules
from perdure.capture.remote import FileExtent, RemoteConnection
from perdure.capture.settle import Answer, Attempt
from perdure.capture.transcripts import find_lines_end, find_session_fault
from perdure.disk import lock_file, replace_file
from perdure.errors import LineRefused, RemoteAway, RemoteFault, RemoteNonsense
from perdure.identity import find_project

PIECE_BYTES = 1 << 23  # sent in one request, unless one line is longer
_MAX_HEADER_BYTES = 1 << 20  # the first line of a delta is not longer
_MAX_PATH_CHARS = 4096  # of a file's name, sent at most
_BLOCK_BYTES = 1 << 16  # read at a time to find line ends
_MIN_REQUEST_S = 0.25  # no request begins with less time: its timeout would say nothing about the home
_EMITTED_FIELD = ("emitted", "true")  # lines that an adapter made: the home finds their place

ProgressCallback = Callable[[int], object]  # called with the bytes of each delta that the home took


class DeliveryResult(NamedTuple):
    """The result of one delivery."""

    n_deltas: int = 0
    n_bytes: int = 0
    n_set_aside: int = 0  # refused by the home permanently
    is_done: bool = True  # False: some were left for lack of time
    n_foreign: int = 0  # captured for another person; they wait on


class _RejectedDelta(Exception):
    """The home refuses this delta, however often it is sent."""


class _LineTooLong(_RejectedDelta):
    """A line is longer than the home takes."""

    def __init__(self, high: int) -> None:
        super().__init__("a line is longer than the home accepts")
        self.high = high  # position after the line in its file


class _SourceStream(NamedTuple):
    """A range of bytes in a file, with its place in the source."""

    extent: FileExtent
    from_offset: int  # of the first of them in the source

    def to_offset(self, position: int) -> int:
        """Return the offset in the source of a position in the file."""
        return self.from_offset + position - self.extent.low


def deliver_outbox(
    rules: CaptureRules,
    connection: RemoteConnection | None = None,
    *,
    wait_s: float = 0.0,
    deadline_s: float | None = None,
    piece_bytes: int = PIECE_BYTES,
    progress: ProgressCallback = lambda _: None,
) -> DeliveryResult:
    """Send the outbox, until it is empty or the deadline (of the monotonic clock) has passed; return the result.

    connection: one that is open already. wait_s: how long to wait for another process that is sending.
    Raises Busy when that takes longer, RemoteFault, ConfigFault, CredentialFault; deltas that were not sent
    wait on.
    """
    paths, tried_paths, result, refusal = (
        enqueue.list_deltas(rules.home / "outbox"),
        set[Path](),
        DeliveryResult(),
        None,
    )
    if not paths:
        return result
    active_connection = connection or remote.open_connection(rules.home, rules.remote)
    try:
        while new_paths := [path for path in paths if path not in tried_paths]:
            with lock_file(rules.home / "outbox" / ".lock", wait_s=wait_s):
                delivery_round = _DeliveryRound(rules, active_connection, deadline_s, piece_bytes, progress)
                result = delivery_round.run(new_paths, result)
                refusal = delivery_round.refusal or refusal
            if not result.is_done:
                break
            tried_paths.update(new_paths)  # another process may have enqueued meanwhile and left the sending to us
            paths = enqueue.list_deltas(rules.home / "outbox")
        if result.n_deltas:
            remote.mark_available(rules.home)
    except RemoteFault as fault:
        remote.mark_away(rules.home, after_s=fault.after_s, reason=fault.detail)
        raise
    finally:
        if connection is None:
            active_connection.close()
    if refusal is not None:
        raise refusal
    return result


class _DeliveryRound:
    """One delivery of deltas, one after the other, over one connection."""

    def __init__(
        self,
        rules: CaptureRules,
        connection: RemoteConnection,
        deadline_s: float | None,
        piece_bytes: int,
        progress: ProgressCallback,
    ) -> None:
        self._rules = rules
        self._connection = connection
        self._deadline_s = deadline_s
        self._piece_bytes = piece_bytes
        self._progress = progress
        self._waiting_sessions: set[str] = set()  # sessions with a refused line: what follows it waits, too
        self.refusal: LineRefused | None = None

    def run(self, paths: Sequence[Path], result: DeliveryResult) -> DeliveryResult:
        """Send the deltas; return the earlier result plus that of this round."""
        user = credential.read_owner(self._rules.home)
        for path in paths:
            if self._get_time_left_s() <= 0:
                return result._replace(is_done=False)
            if enqueue.is_foreign_delta(path, user):
                result = result._replace(n_foreign=result.n_foreign + 1)
                continue
            try:
                n_bytes = path.stat().st_size
                self._deliver_one(_DeltaDelivery(path, self._rules, self._post_pieces))
            except LineRefused as fault:
                self.refusal = fault
                continue
            except FileNotFoundError:
                continue  # another process moved it meanwhile
            except _OutOfTime:
                return result._replace(is_done=False)
            except (
                _RejectedDelta,
                KeyError,
                TypeError,
                ValueError,
            ) as error:  # not a delta of ours, or a damaged one
                enqueue.set_aside(path)
                log.append_entry(self._rules.home, "set-aside", error=str(error), file=path.name)
                result = result._replace(n_set_aside=result.n_set_aside + 1)
                continue
            path.unlink(missing_ok=True)
            _to_progress_path(path).unlink(missing_ok=True)
            self._progress(n_bytes)
            result = result._replace(n_deltas=result.n_deltas + 1, n_bytes=result.n_bytes + n_bytes)
        return result

    def _deliver_one(self, delta: _DeltaDelivery) -> None:
        """Deliver one delta. Raises LineRefused for one that must wait, and for those that follow it in its session."""
        if self.refusal is not None and delta.session in self._waiting_sessions:
            raise self.refusal
        try:
            delta.deliver()
        except LineRefused:
            self._waiting_sessions.add(delta.session)
            raise

    def _get_time_left_s(self) -> float:
        return remote.TIMEOUT_S if self._deadline_s is None else self._deadline_s - time.monotonic()

    def _post_pieces(self, fields: Sequence[tuple[str, str]], stream: _SourceStream) -> Iterator[tuple[int, Answer]]:
        """Yield (end of the piece in the file, its result) for each piece of the stream.

        Raises _OutOfTime, and _LineTooLong or LineRefused for a line that the home does not take.
        """
        extent, size = stream.extent, self._piece_bytes
        low = extent.low
        while low < extent.high:
            high = _find_piece_end(extent, low, size)
            if self._get_time_left_s() <= _MIN_REQUEST_S:
                raise _OutOfTime
            self._connection.timeout_s = min(remote.TIMEOUT_S, self._get_time_left_s())
            query = [*fields, ("from_offset", str(stream.to_offset(low)))] if _EMITTED_FIELD not in fields else fields
            response = self._connection.ask("POST", "runs", query=query, body=FileExtent(extent.path, low, high))
            if response.status == 413:
                if _find_piece_end(extent, low, 1) >= high:
                    raise _LineTooLong(high) if response.code == "too-large" else LineRefused(f"{high - low} bytes")
                size = max(1, (high - low) // 2)
                continue
            answer = _parse_answer(response)
            yield high, answer
            low = high


class _OutOfTime(Exception):
    """The time is over."""


class _DeltaDelivery:
    """The delivery of one delta to the home."""

    def __init__(
        self,
        path: Path,
        rules: CaptureRules,
        post_pieces: Callable[[Sequence[tuple[str, str]], _SourceStream], Iterator[tuple[int, Answer]]],
    ) -> None:
        """Read the header. Raises KeyError, TypeError or ValueError for a file that is no delta."""
        with path.open("rb") as file:
            header = file.readline(_MAX_HEADER_BYTES)
            low, high = file.tell(), file.seek(0, 2)
        if not header.endswith(b"\n"):
            raise ValueError("no head")
        self._path = path
        self._post_pieces = post_pieces
        self._header = dict(json.loads(header))
        self._fields = _make_fields(self._header, rules)
        self.session = self._header["origin"]["session"]
        self._from_offset: int | None = self._header["from_offset"]
        if self._from_offset is not None and (type(self._from_offset) is not int or self._from_offset < 0):
            raise ValueError("from_offset")
        self._extent = FileExtent(path, low, high)
        self._can_resume = True  # only the first attempt goes on where an earlier delivery ended

    def deliver(self) -> None:
        """Deliver the delta.

        If the home refuses a line as too long, deliver the other lines and raise _RejectedDelta.
        """
        try:
            self._deliver_bytes()
        except _LineTooLong as error:
            self._deliver_from(error.high)
            raise

    def _deliver_from(self, position: int) -> None:
        """Deliver the bytes after a line that the home refuses, as a source of their own: they join nothing."""
        if position >= self._extent.high:
            return
        self._extent = self._extent._replace(low=position)
        try:
            if self._from_offset is None:
                self._put_emitted_lines()
            else:
                settle.run_attempts(settle.put_stream("separate", 0), self._send)
        except _LineTooLong as error:
            self._deliver_from(error.high)

    def _deliver_bytes(self) -> None:
        """Deliver the bytes, in whatever way that takes. Raises _RejectedDelta."""
        if self._from_offset is None:
            self._put_emitted_lines()
            return
        has_transcript = bool(self._header["path"]) and Path(self._header["path"]).is_file()
        attempts = settle.settle_delta(self._from_offset, has_transcript=has_transcript)
        if not settle.run_attempts(attempts, self._send).is_done:
            raise _RejectedDelta("the home accepts it at no offset")

    def _put_emitted_lines(self) -> None:
        """Send lines that an adapter emitted; the home appends those that it lacks."""
        fields = [*self._fields, ("session", self.session), _EMITTED_FIELD]
        for _, answer in self._post_pieces(fields, _SourceStream(self._extent, 0)):
            if not answer.is_done and answer.outcome != "accepted":
                raise RemoteAway(f"session {self.session} is being written to")

    def _send(self, attempt: Attempt) -> Answer:
        """Send the bytes of an attempt; return the home's last answer."""
        if attempt.stream == "delta":
            can_resume, self._can_resume = self._can_resume, False
            return self._send_pieces(
                _SourceStream(self._extent, self._from_offset or 0), attempt, can_resume=can_resume
            )
        if attempt.stream == "separate":
            session = f"{self.session}~{_hash_extent(self._extent)[:12]}"
            return self._send_pieces(_SourceStream(self._extent, 0), attempt, session=session)
        try:
            path = Path(self._header["path"])
            end = find_lines_end(path, path.stat().st_size)
            low = find_lines_end(path, attempt.from_offset) if attempt.from_offset <= end else end
            if low == end:
                return settle.NOT_SENT
            return self._send_pieces(_SourceStream(FileExtent(path, low, end), low), attempt)
        except (_RejectedDelta, OSError, ValueError):  # unreadable, or being rewritten now
            return settle.NOT_SENT

    def _send_pieces(
        self, stream: _SourceStream, attempt: Attempt, *, session: str = "", can_resume: bool = False
    ) -> Answer:
        """Send a stream from the offset of the attempt, in pieces.

        Return the answer to the last piece, or to the first that is not wholly stored.
        can_resume: go on after the pieces that an earlier delivery got acknowledged.
        """
        extent, generation = stream.extent, attempt.generation
        low = extent.low + max(0, attempt.from_offset - stream.from_offset)
        if can_resume:
            low, generation = _read_progress(self._path, extent, generation)
        fields = [*self._fields, ("session", session or self.session)]
        fields += [("generation", str(generation))] if generation is not None else []
        answer = Answer("already", 0, generation or 0)
        rest = _SourceStream(extent._replace(low=low), stream.to_offset(low))
        for high, answer in self._post_pieces(fields, rest):
            if answer.outcome == "accepted" and not stream.to_offset(low) < answer.end < stream.to_offset(high):
                raise RemoteNonsense(f"accepted up to {answer.end}")
            if not answer.is_done:
                return answer
            if answer.end < stream.to_offset(high):
                raise RemoteNonsense(f"{answer.outcome} up to {answer.end}")
            low = high
            if can_resume and low < extent.high:
                _write_progress(self._path, low, answer.generation)
        return answer


def _make_fields(header: dict[str, Any], rules: CaptureRules) -> list[tuple[str, str]]:
    """Return the fields sent with every piece of a delta, except the session and the place in it."""
    origin = header["origin"]
    values = {
        "runtime": origin["runtime"],
        "conversation": origin["conversation"],
        "cwd": origin["cwd"],
        "parent_session": origin["parent_session"],
        "fork": "true" if origin["fork"] else None,
        "project": find_project(origin["cwd"]),
        "path": header["path"] and header["path"][:_MAX_PATH_CHARS],
        "agent": rules.agent,
    }
    fields = [(name, value) for name, value in values.items() if value is not None]
    fields += [("tag", tag) for tag in header["tags"]]
    if not all(isinstance(value, str) for _, value in fields) or not isinstance(origin["session"], str):
        raise TypeError("a field is no text")
    if fault := find_session_fault(origin["session"], origin["runtime"]):
        raise ValueError(f"the session id is refused: {fault}")
    return fields


def _parse_answer(response: remote.RemoteResponse) -> Answer:
    """Parse the home's answer to a piece.

    Raises _RejectedDelta if the home will never take it, RemoteNonsense for an answer that is none.
    """
    if response.status == 400 and response.code:
        raise _RejectedDelta(response.code)
    if response.status not in (202, 409):
        raise RemoteNonsense(f"status {response.status} to a capture")
    body = response.body
    outcome = response.code if response.status == 409 else body.get("outcome")
    end, generation = body.get("accepted_up_to"), body.get("generation")
    outcomes = ("diverged", "gap") if response.status == 409 else ("stored", "already", "accepted")
    if response.status == 409 and outcome not in outcomes:
        raise RemoteAway(f"conflict: {outcome}")
    if outcome not in outcomes or type(end) is not int or type(generation) is not int:
        raise RemoteNonsense(f"status {response.status} without an outcome")
    return Answer(str(outcome), end, generation)


# progress of an attempt ------------------------------------------------------------------------------------------


def _to_progress_path(path: Path) -> Path:
    return path.with_suffix(".sent")


def _read_progress(path: Path, extent: FileExtent, generation: int | None) -> tuple[int, int | None]:
    """Return (position after the acknowledged bytes of the file, their generation); its beginning without any."""
    try:
        low, known_generation = json.loads(_to_progress_path(path).read_bytes())
        if extent.low <= int(low) < extent.high:
            return int(low), int(known_generation)
    except (OSError, ValueError, TypeError):
        pass  # no earlier attempt, or an unreadable note of it: bytes that are sent twice are kept once
    return extent.low, generation


def _write_progress(path: Path, low: int, generation: int) -> None:
    replace_file(_to_progress_path(path), json.dumps([low, generation]).encode(), sync=False)


# lines of a file ------------------------------------------------------------------------------------------------


def _find_piece_end(extent: FileExtent, low: int, size: int) -> int:
    """Return the end of a piece that begins at `low`.

    That is after the last line that ends within `size` bytes, or else after the first line.
    """
    high = min(extent.high, low + size)
    if high == extent.high:
        return high
    with extent.path.open("rb") as file:
        position = high
        while position > low:
            start = max(low, position - _BLOCK_BYTES)
            file.seek(start)
            newline = file.read(position - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            position = start
        position = high
        while position < extent.high:
            file.seek(position)
            block = file.read(min(_BLOCK_BYTES, extent.high - position))
            newline = block.find(b"\n")
            if newline >= 0:
                return position + newline + 1
            position += len(block) or extent.high
    return extent.high


def _hash_extent(extent: FileExtent) -> str:
    digest = hashlib.sha256()
    for block in extent.read_blocks():
        digest.update(block)
    return digest.hexdigest()
