"""The systems of the table: those that are asked in this process, and those that answer from a process of their own.

Each is asked the same questions of the same texts. What it returned is kept in a file for each set and system, a line
for each question: of a system with a process of its own, a run that ended goes on from there. Times are processor
times, so that they do not depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import disk_use_of, find_commit
from benchmarks.peers.__main__ import Driven, command
from benchmarks.peers.install import PEERS, ROOT, model, python_of
from benchmarks.peers.serve import read_cpu_s
from perdure import text
from perdure.eval.block_sets import Block, BlockItem, BlockQuestion, BlockSet, list_scopes, open_set
from perdure.eval.block_ways import N_SEARCHED, Ways, excerpt_hits, list_pieces
from perdure.eval.datasets import read_rows
from perdure.models.cost_meter import Meter
from perdure.recall.tuning import DEFAULT
from perdure.types import Hit

MODES = {"txtai": "hybrid", "mem0": "hybrid", "mempalace": "as it comes"}
PEER_NAMES = (*MODES, "deja-vu")
HOST_FILE_LINES = 200  # of its memory file a client reads at the start of a session

Key = tuple[str, str, str]  # scope, user, question
Blocks = dict[str, list[Block]]  # scope -> the block for each question
Cost = dict[str, Any]


@contextmanager
def open_homes(sources: Sequence[Path], folder: Path) -> Iterator[tuple[BlockSet, float | None]]:
    """Yield a set with its homes in a folder, and the processor seconds that they took to make.

    Homes of this commit are used again, those of another are made anew. A note beside the folder names the commit, and
    the seconds: none for homes whose making was interrupted and went on.
    """
    note, commit = folder.with_name(f"{folder.name}.json"), find_commit()
    is_new = not note.exists() or json.loads(note.read_text())["commit"] != commit
    if is_new:
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(json.dumps({"commit": commit, "cpu_s": None}) + "\n")
    began_s = read_cpu_s()
    with open_set(sources, folder, vectors=True, stated=True) as block_set:
        if is_new:
            note.write_text(json.dumps({"commit": commit, "cpu_s": round(read_cpu_s() - began_s, 1)}) + "\n")
        yield block_set, json.loads(note.read_text())["cpu_s"]


class AnswerFile:
    """What one system told on one set, a line each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        rows = list(read_rows(path)) if path.exists() else []
        self.answers: dict[Key, dict[str, Any]] = {(row["scope"], row["user"], row["question"]): row for row in rows}

    def add(self, key: Key, told: Sequence[Any], cpu_ms: float) -> None:
        """Keep one answer: ids of texts, or its own words."""
        row = dict(zip(("scope", "user", "question"), key, strict=True), told=told, ms=round(cpu_ms, 2))
        self.answers[key] = row
        with self._path.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(row, ensure_ascii=False) + "\n")


class OwnSystems:
    """The systems that are asked in this process, over the homes of a set."""

    def __init__(self, block_set: BlockSet, host_lines: Mapping[str, Sequence[str]]) -> None:
        """host_lines: user -> the lines of a host's memory file that holds every decision."""
        self._set = block_set
        self._ways = {user: Ways(home, block_set.asked_at.get(user)) for user, home in block_set.homes.items()}
        self._host_lines = host_lines
        self.names = ["none", "placebo", "grep", "FTS5", *(["host file"] if host_lines else []), "Perdure"]

    def ask_all(self) -> dict[str, Blocks]:
        """Return system -> scope -> its blocks."""
        scopes = list_scopes(self._set.questions)
        blocks: dict[str, Blocks] = {name: {scope: [] for scope in scopes} for name in self.names}
        for scope, is_everywhere in scopes.items():
            for n_asked, question in enumerate(self._set.questions):
                for name, block in self._ask(question, is_everywhere).items():
                    blocks[name][scope].append(block)
                show(f"{scope}: {n_asked + 1} of {len(self._set.questions)}")
        return blocks

    def _ask(self, question: BlockQuestion, is_everywhere: bool) -> dict[str, Block]:
        ways = self._ways[question.user]
        recalled, *searched = (
            ask_on_the_clock(way, question, is_everywhere)
            for way in (ways.recall, ways.search_like_grep, ways.search_plain_text)
        )
        blocks = {
            "none": Block(question, ()),
            "placebo": cut_block(ways.draw_turns(question, is_everywhere), recalled.n_tokens),
            **dict(zip(("grep", "FTS5"), searched, strict=True)),
            "Perdure": recalled,
        }
        if self._host_lines:
            lines = "\n".join(self._host_lines[question.user][:HOST_FILE_LINES])
            blocks["host file"] = Block(question, (BlockItem("", lines, text.tokens(lines)),))
        return blocks

    def cost(self, cpu_s: float | None, hosts: Sequence[str]) -> dict[str, Cost]:
        """Return the costs of each; cpu_s: processor seconds to take the set in, None where that is not known."""
        homes = self._set.homes.values()
        n_bytes = sum(len(piece.text.encode()) for home in homes for piece in list_pieces(home))
        meters = (Meter(home.path, now=lambda: datetime.now(UTC)) for home in homes)
        n_tokens = sum(meter.read_spending()["month"].n_tokens for meter in meters)
        texts = {"mb": n_bytes / 1e6, "tokens_written": 0, "cpu_s": 0.0, "hosts": []}
        kept = {"mb": 0.0, "tokens_written": n_tokens, "cpu_s": cpu_s, "hosts": list(hosts)}
        host_bytes = sum(len(line) + 1 for lines in self._host_lines.values() for line in lines)
        return {
            "none": {**texts, "mb": 0.0}, "placebo": {**texts, "mb": 0.0}, "grep": texts,
            "FTS5": {**texts, "mb": sum(ways.plain_search.n_bytes for ways in self._ways.values()) / 1e6},
            "Perdure": kept,
            **({"host file": {**texts, "mb": host_bytes / 1e6, "tokens_written": None}} if self._host_lines else {}),
        }  # fmt: skip


def ask_on_the_clock(
    way: Callable[[BlockQuestion, bool], Block], question: BlockQuestion, is_everywhere: bool
) -> Block:
    """Return what a way tells, with the processor time that it took."""
    began_s = read_cpu_s()
    block = way(question, is_everywhere)
    return replace(block, took_ms=(read_cpu_s() - began_s) * 1000)


def cut_block(block: Block, n_tokens: int) -> Block:
    """Return a block that is cut to so many tokens; empty for none."""
    items, left = [], n_tokens
    for item in block.items:
        if left <= 0:
            break
        words = item.text if item.n_tokens <= left else item.text[: int(len(item.text) * left / item.n_tokens)]
        items.append(BlockItem(item.turn_id, words, min(left, item.n_tokens)))
        left -= item.n_tokens
    return Block(block.question, tuple(items), block.took_ms)


class Outside(NamedTuple):
    """A system in a process of its own."""

    name: str
    line: list[str]  # the command, in which {folder} is an empty folder of its own
    problem: str = ""  # why it cannot run


def read_adapter(words: str) -> Outside:
    """Return the system that `NAME=COMMAND` describes. Raises ArgumentTypeError if it is not of this form.

    >>> read_adapter("mine=python my_adapter.py").problem, read_adapter("mine=no-such-program").problem
    ('', 'no program `no-such-program` here')
    """
    name, _, command_line = words.partition("=")
    line = shlex.split(command_line)
    if not (name and line):
        raise argparse.ArgumentTypeError(f"{words!r} is not NAME=COMMAND")
    return Outside(name, line, "" if shutil.which(line[0]) else f"no program `{line[0]}` here")


def find_peer(name: str, cache: Path) -> Outside:
    """Return a known peer, installed into the cache; or with the reason why it is not there."""
    if name == "deja-vu":
        program = shutil.which("deja")
        driver = [sys.executable, str(ROOT / "benchmarks" / "peers" / "drive_deja.py")]
        if program is None:
            return Outside(name, [], "no program `deja` on the PATH")
        return Outside(name, [*driver, program, "{folder}"])
    peer = next(peer for peer in PEERS if peer.name == name)
    python, weights = python_of(peer, cache), model(cache)
    for missing in (python, weights):
        if isinstance(missing, str):
            return Outside(name, [], f"not installed: {missing}")
    line = command(peer, MODES[name], Path(python), Path(weights), Path("{folder}"))
    if name == "mem0":
        line = [*line[:-1], "as-it-comes"]
    return Outside(name, [*line, "{folder}"] if name == "txtai" else line)


class OutsideRun:
    """One outside system on one set."""

    def __init__(self, system: Outside, block_set: BlockSet, out: Path) -> None:
        """out: the beginning of its files' paths; a digest of the texts follows, so that others are asked anew."""
        self._system = system
        self._set = block_set
        self._pieces = {
            user: {f"{piece.turn_id}#{piece.chunk}": piece for piece in sort_pieces(list_pieces(home))}
            for user, home in block_set.homes.items()
        }
        texts = [(user, name, piece.text) for user, pieces in self._pieces.items() for name, piece in pieces.items()]
        digest = hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:8]
        self._file = AnswerFile(out.with_name(f"{out.name}-{digest}.jsonl"))
        self._cost_path = out.with_name(f"{out.name}-{digest}.cost.json")

    def ask_all(self) -> tuple[Blocks, Cost] | str:
        """Return scope -> its blocks, and what it cost; or the reason why the system could not answer."""
        scopes = list_scopes(self._set.questions)
        keys = [(scope, question.user, question.text) for scope in scopes for question in self._set.questions]
        if any(key not in self._file.answers for key in keys):
            problem = self._system.problem or self._ask_missing(scopes)
            if problem:
                return problem
        blocks = {scope: [self._to_block(scope, question) for question in self._set.questions] for scope in scopes}
        return blocks, json.loads(self._cost_path.read_text(encoding="utf-8"))

    def _to_block(self, scope: str, question: BlockQuestion) -> Block:
        row = self._file.answers[scope, question.user, question.text]
        pieces = self._pieces[question.user]
        ranked = [pieces[told] for told in row["told"] if isinstance(told, str)]
        if len(ranked) == len(row["told"]):
            return Block(question, excerpt_hits(ranked, question), row["ms"])
        items = tuple(
            BlockItem(told.get("id", "").partition("#")[0], told["text"], text.tokens(told["text"]))
            for told in row["told"]
        )
        return cut_block(Block(question, items, row["ms"]), DEFAULT.max_tokens)

    def _ask_missing(self, scopes: Mapping[str, bool]) -> str:
        """Ask what is not in the file; return the reason if that failed."""
        with tempfile.TemporaryDirectory(prefix="perdure-table-") as scratch:
            folder, complaints = Path(scratch) / "kept", Path(scratch) / "stderr"
            folder.mkdir()
            driven = Driven([word.replace("{folder}", str(folder)) for word in self._system.line], complaints)
            try:
                self._take_all(driven, folder)
                self._ask_each(driven, scopes)
            except EOFError:
                last_lines = complaints.read_text().strip().splitlines() or ["nothing"]
                return f"ended early; it last said: {last_lines[-1]}"
            finally:
                driven.close()
        return ""

    def _take_all(self, driven: Driven, folder: Path) -> None:
        answers = []
        for n, (user, pieces) in enumerate(self._pieces.items()):
            answers.append(driven.say(take=user, texts=[to_text(name, piece) for name, piece in pieces.items()]))
            show(f"{self._system.name}: {n + 1} of {len(self._pieces)} memories")
        tokens = [answer["tokens_written"] for answer in answers]
        cost = {
            "mb": disk_use_of(folder) / 1e6, "tokens_written": None if None in tokens else sum(tokens),
            "cpu_s": round(sum(answer["cpu_s"] for answer in answers), 1), "hosts": answers[-1]["hosts"],
        }  # fmt: skip
        self._cost_path.write_text(json.dumps(cost) + "\n", encoding="utf-8")

    def _ask_each(self, driven: Driven, scopes: Mapping[str, bool]) -> None:
        for scope, is_everywhere in scopes.items():
            for question in self._set.questions:
                key = (scope, question.user, question.text)
                if key not in self._file.answers:
                    project = "" if is_everywhere else question.project or ""
                    answer = driven.say(ask=question.text, group=question.user, k=N_SEARCHED, project=project)
                    self._file.add(key, answer["told"], answer["cpu_ms"])


def sort_pieces(pieces: Sequence[Hit]) -> list[Hit]:
    """Return the pieces that hold something, oldest first."""
    return sorted(
        (piece for piece in pieces if piece.text.strip()),
        key=lambda piece: (piece.stated_at.isoformat() if piece.stated_at else "", piece.turn_id, piece.chunk),
    )


def to_text(name: str, piece: Hit) -> dict[str, str]:
    """A piece of a turn as an outside system gets it."""
    at = piece.stated_at.isoformat() if piece.stated_at else ""
    return {
        "id": name, "text": piece.text, "project": piece.project or "", "session": piece.run_id, "role": piece.role,
        "at": at,
    }  # fmt: skip


def show(words: str) -> None:
    """Show how far it is, at most twice a second."""
    now = time.monotonic()
    if now - _shown["at"] > 0.5:
        _shown["at"] = now
        print(f"  {words}", file=sys.stderr, flush=True)


_shown = {"at": 0.0}
