"""Hook, drain, import and delivery in any order: every acknowledged line is in the archive, once in each generation."""

from __future__ import annotations

import itertools
import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

import perdure
from perdure.archive.archive import Delta
from perdure.archive.ingest import clean_origin
from perdure.capture import deliver, enqueue
from perdure.capture.policy import CaptureRules
from perdure.capture.remote import FileExtent, RemoteResponse
from perdure.capture.settle import Answer, Attempt, put_stream, run_attempts, settle_delta
from perdure.types import Origin, Source

SESSION = "0b0b0b0b-0000-4000-8000-000000000001"
ORIGIN = clean_origin(Origin("claude-code", SESSION, SESSION, None, "/w"))
GROW = ("append", "append long", "hook", "drain", "deliver", "import", "lose cursor", "drain twice")
BREAK = ("rewrite", "shorten", "delete", "back up", "restore")


class Machine:
    """One session of a client, the home that keeps it, and the home as a remote one."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.path = folder / f"{SESSION}.jsonl"
        self.folder, self.random, self.numbers = folder, random.Random(seed), itertools.count()
        self.home = perdure.open(folder / "home", user="ada")
        self.rules = CaptureRules(self.home.path, "ada", "laptop", (), folder, 1000)
        self.acknowledged: set[bytes] = set()
        self.backed_up: set[bytes] = set()

    def make_line(self, width: int = 20) -> bytes:
        message = {"role": "user", "content": f"{'x' * width} line {next(self.numbers)}"}
        known = {"type": "user", "sessionId": SESSION, "cwd": "/w", "timestamp": "2026-01-15T09:00:00.000Z"}
        return json.dumps({**known, "uuid": f"u{next(self.numbers)}", "message": message}).encode() + b"\n"

    def read_lines(self) -> list[bytes]:
        return self.path.read_bytes().splitlines(keepends=True) if self.path.exists() else []

    def do(self, step: str) -> None:
        lines = self.read_lines()
        if step == "append":
            self.path.write_bytes(b"".join([*lines, *(self.make_line() for _ in range(self.random.randint(1, 3)))]))
        elif step == "append long":
            self.path.write_bytes(b"".join([*lines, self.make_line(6000)]))  # longer than a witness
        elif step == "rewrite" and lines:
            lines[self.random.randrange(len(lines))] = self.make_line()
            self.path.write_bytes(b"".join(lines))
        elif step == "shorten" and lines:
            self.path.write_bytes(b"".join(lines[: self.random.randrange(len(lines))]))
        elif step == "delete":
            self.path.unlink(missing_ok=True)
        elif step == "hook" and lines:
            enqueue.enqueue_file(self.rules, vars_of(ORIGIN), self.path)
            self.acknowledged |= set(lines)
        elif step == "lose cursor":
            shutil.rmtree(self.home.path / "outbox" / "cursors", ignore_errors=True)
        elif step == "drain":
            self.home.captures.drain()
        elif step == "drain twice":  # killed between the archive and the removal of the delta
            copies = {path: path.read_bytes() for path in enqueue.list_deltas(self.home.path / "outbox")}
            self.home.captures.drain()
            for path, data in copies.items():
                path.write_bytes(data)
            self.home.captures.drain()
        elif step == "deliver":
            deliver.deliver_outbox(self.rules, self, piece_bytes=300)  # type: ignore[arg-type]  # what it asks for
        elif step == "import" and lines:
            self.home.captures.import_files([self.path])
            self.acknowledged |= set(lines)
        elif step == "back up":
            self.home.captures.drain()
            self.backed_up = set(self.acknowledged)
            shutil.rmtree(self.folder / "backup", ignore_errors=True)
            shutil.copytree(self.home.path / "archive", self.folder / "backup")
        elif step == "restore" and (self.folder / "backup").exists():
            self.home.close()
            shutil.rmtree(self.home.path / "archive")
            shutil.rmtree(self.home.path / "cache")
            shutil.copytree(self.folder / "backup", self.home.path / "archive")
            self.home = perdure.open(self.home.path, user="ada")
            self.acknowledged = set(self.backed_up)  # what came after it is where it still waits, or in its transcript

    timeout_s = 0.0

    def close(self) -> None:
        self.home.close()

    def ask(self, method: str, path: str, *, query: Sequence[tuple[str, str]], body: FileExtent) -> RemoteResponse:
        """Answer as the service does: store the lines, or say what to send instead."""
        assert (method, path) == ("POST", "runs")
        fields = dict(query)
        origin = Origin(fields["runtime"], fields["session"], fields["conversation"], None, fields.get("cwd"))
        delta = Delta(
            origin=origin,
            user="ada",
            machine="laptop",
            data=b"".join(body.read_blocks()),
            from_offset=int(fields["from_offset"]),
            generation=int(fields["generation"]) if "generation" in fields else None,
        )
        (result,) = self.home.captures.receive([delta])
        place = {"accepted_up_to": result.to_offset, "generation": result.generation}
        if result.outcome in ("diverged", "gap"):
            return RemoteResponse(409, json.dumps({"error": {"code": result.outcome}, **place}).encode())
        return RemoteResponse(202, json.dumps({"outcome": result.outcome, **place}).encode())

    def read_sources(self) -> Iterator[tuple[Source, bytes]]:
        """Yield each source of the archive with its bytes, which must be without a gap or an overlap."""
        ledger = self.home.archive.ledger
        for source in {self.home.archive.read_run(entry).source for entry in ledger.list_runs()}:
            data = b""
            for entry in sorted(ledger.list_source_runs(source), key=lambda entry: entry.from_offset):
                assert entry.from_offset == len(data), source
                data += self.home.archive.read(entry)
            yield source, data


def vars_of(origin: Origin) -> dict[str, object]:
    names = ("runtime", "session", "conversation", "parent_session", "cwd", "fork")
    return {name: getattr(origin, name) for name in names}


def run_steps(steps: Sequence[str], seed: int) -> tuple[Machine, dict[Source, Counter[bytes]]]:
    with TemporaryDirectory() as folder:
        machine = Machine(Path(folder), seed)
        try:
            for step in (*steps, "append", "hook", "drain"):
                machine.do(step)
            assert enqueue.list_deltas(machine.home.path / "outbox") == []
            return machine, {source: Counter(data.splitlines(keepends=True)) for source, data in machine.read_sources()}
        finally:
            machine.close()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(GROW), max_size=14), st.integers(0, 99))
def test_a_growing_transcript_is_one_source_with_each_line_once(steps: list[str], seed: int) -> None:
    machine, sources = run_steps(steps, seed)
    ((source, lines),) = sources.items()
    assert source.generation == 0 and set(lines) == machine.acknowledged
    assert set(lines.values()) == {1}


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(GROW + BREAK), max_size=16), st.integers(0, 99))
def test_whatever_happens_every_acknowledged_line_is_kept_and_once_in_its_source(steps: list[str], seed: int) -> None:
    machine, sources = run_steps(steps, seed)
    assert machine.acknowledged <= set().union(*sources.values())
    assert all(set(lines.values()) == {1} for lines in sources.values())


# the decisions alone ------------------------------------------------------------------------------------------


def answers(attempts, *given: Answer) -> tuple[list[Attempt], Answer]:  # type: ignore[no-untyped-def]  # a generator
    made: list[Attempt] = []
    rest = iter(given)

    def send(attempt: Attempt) -> Answer:
        made.append(attempt)
        return next(rest)

    return made, run_attempts(attempts, send)


def test_a_stored_delta_is_one_attempt() -> None:
    made, answer = answers(settle_delta(40, has_transcript=True), Answer("stored", 90, 0))
    assert made == [Attempt("delta", 40)] and answer.is_done


def test_only_the_rest_of_an_accepted_delta_is_sent_in_its_generation() -> None:
    made, _ = answers(settle_delta(40, has_transcript=True), Answer("accepted", 60, 2), Answer("stored", 90, 2))
    assert made == [Attempt("delta", 40), Attempt("delta", 60, 2)]


def test_a_rewrite_tries_earlier_generations_newest_first_and_then_the_next() -> None:
    diverged = [Answer("diverged", 10, 2), Answer("diverged", 10, 1), Answer("diverged", 10, 0)]
    made, _ = answers(put_stream("transcript", 0), *diverged, Answer("stored", 90, 3))
    assert [attempt.generation for attempt in made] == [None, 1, 0, 3]


def test_a_gap_sends_the_transcript_from_a_little_before_it() -> None:
    gap, stored = Answer("gap", 9000, 0), Answer("stored", 20_000, 0)
    made, answer = answers(settle_delta(15_000, has_transcript=True), gap, stored, Answer("already", 20_000, 0))
    assert made[1] == Attempt("transcript", 9000 - 4096) and answer.is_done


def test_a_transcript_that_differs_before_the_gap_is_sent_whole() -> None:
    gap, diverged = Answer("gap", 9000, 0), Answer("diverged", 9000, 0)
    made, _ = answers(settle_delta(15_000, has_transcript=True), gap, diverged, gap, Answer("stored", 200, 0))
    assert [(attempt.stream, attempt.from_offset) for attempt in made[2:]] == [("transcript", 0), ("separate", 0)]


def test_without_a_transcript_the_bytes_become_their_own_source() -> None:
    made, answer = answers(settle_delta(40, has_transcript=False), Answer("gap", 0, 0), Answer("stored", 50, 0))
    assert made == [Attempt("delta", 40), Attempt("separate", 0)] and answer.is_done


def test_an_answer_that_does_not_move_ends_the_attempts() -> None:
    stuck = Answer("accepted", 40, 0)
    made, answer = answers(put_stream("delta", 40), stuck)
    assert len(made) == 1 and not answer.is_done
