"""Other memories on the measures of the block: what a model would read, the same texts and questions for all.

A peer gets the pieces of all turns that recall may tell. What it returns for a message is packed as keyword search is:
20 turns at most, the part of each that holds most of the message's words, 2,000 tokens in all. Answers are kept in a
file for each set and system, so that a run that ended goes on where it was.

    python -m benchmarks.peers.block                          # every set that is there, peers that can be installed
    python -m benchmarks.peers.block --sets shipped --only txtai
    python -m benchmarks.peers.block --only                   # Perdure's own rows alone
    python -m benchmarks.peers.block --sets coding --questions FILE… --transcripts DIR
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import OUT, machine
from benchmarks.peers.__main__ import DATA, ENVIRONMENT, Driven, command
from benchmarks.peers.install import PEERS, ROOT, Peer, model, python_of
from perdure.eval.block_quality import (
    N_SEARCHED,
    WAYS,
    Block,
    BlockItem,
    BlockQuestion,
    BlockSet,
    Ways,
    excerpt_hits,
    list_pieces,
    list_scopes,
    measure_blocks,
    open_set,
)
from perdure.eval.datasets import read_rows
from perdure.eval.recall_quality import SHIPPED
from perdure.types import Hit

QUESTIONS = ROOT / "benchmarks" / "questions"
DIALOGUES = ("sde_dev", "locomo_dev", "realtalk_dev", "beam_dev", "memdaily_zh_dev")
SETS = ("shipped", *DIALOGUES, "coding")
MODES = {"txtai": "hybrid", "mem0": "hybrid", "mempalace": "as it comes"}
SHARES = ("told", "first", "among three", "told in 400", "silent")

Answers = dict[tuple[str, str, str], list[str]]  # (scope, user, question) -> pieces, best first


class AnswerFile:
    """The answers of one peer to one set, a line each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        rows = read_rows(path) if path.exists() else ()
        self.answers: Answers = {(row["scope"], row["user"], row["question"]): row["ranked"] for row in rows}

    def add(self, key: tuple[str, str, str], ranked: list[str]) -> None:
        """Keep one answer."""
        self.answers[key] = ranked
        with self._path.open("a", encoding="utf-8") as lines:
            row = dict(zip(("scope", "user", "question"), key, strict=True), ranked=ranked)
            lines.write(json.dumps(row, ensure_ascii=False) + "\n")


class PeerRun:
    """One peer and one set: its process, and the file with its answers."""

    def __init__(self, peer: Peer, file: AnswerFile, pieces: Mapping[str, Mapping[str, Hit]]) -> None:
        self._peer = peer
        self._file = file
        self._pieces = pieces  # user -> piece id -> the piece

    def ask_all(self, questions: Sequence[BlockQuestion], cache: Path) -> dict[str, list[Block]] | str:
        """Return scope -> its blocks, or the reason why the peer could not answer."""
        scopes = list_scopes(questions)
        keys = [(scope, question.user, question.text) for scope in scopes for question in questions]
        if any(key not in self._file.answers for key in keys):
            reason = self._ask_missing(questions, scopes, cache)
            if reason:
                return reason
        return {
            scope: [
                Block(question, self._pack(question, self._file.answers[scope, question.user, question.text]))
                for question in questions
            ]
            for scope in scopes
        }

    def _pack(self, question: BlockQuestion, ranked: Sequence[str]) -> tuple[BlockItem, ...]:
        pieces = self._pieces[question.user]
        return excerpt_hits([pieces[piece_id] for piece_id in ranked], question)

    def _ask_missing(self, questions: Sequence[BlockQuestion], scopes: Mapping[str, bool], cache: Path) -> str:
        """Ask what is not in the file; return the reason if that failed."""
        python, weights = python_of(self._peer, cache), model(cache)
        for missing in (python, weights):
            if isinstance(missing, str):
                return f"not installed: {missing}"
        with tempfile.TemporaryDirectory(prefix="perdure-peer-") as folder:
            complaints = Path(folder) / "stderr"
            mode = MODES[self._peer.name]
            line = command(self._peer, mode, Path(python), Path(weights), Path(folder))
            driven = Driven([*line[:-1], "as-it-comes"] if self._peer.name == "mem0" else line, complaints)
            try:
                self._take_and_ask(driven, questions, scopes)
            except EOFError:
                last_lines = complaints.read_text().strip().splitlines() or ["nothing"]
                return f"ended early; it last said: {last_lines[-1]}"
            finally:
                driven.close()
        return ""

    def _take_and_ask(self, driven: Driven, questions: Sequence[BlockQuestion], scopes: Mapping[str, bool]) -> None:
        for n, (user, pieces) in enumerate(self._pieces.items()):
            docs = [(piece_id, piece.text, piece.project or "") for piece_id, piece in pieces.items()]
            driven.say(take=user, docs=docs)
            _show(f"{self._peer.name}: {n + 1} of {len(self._pieces)} memories")
        for scope, is_everywhere in scopes.items():
            for question in questions:
                key = (scope, question.user, question.text)
                if key not in self._file.answers:
                    project = "" if is_everywhere else question.project or ""
                    answer = driven.say(ask=question.text, group=question.user, k=N_SEARCHED, project=project)
                    self._file.add(key, answer["ranked"])


def measure_set(name: str, block_set: BlockSet, options: argparse.Namespace) -> dict[str, Any]:
    """Print the rows of one set, and return its figures: scope -> system -> figures."""
    questions = block_set.questions
    scopes = list_scopes(questions)
    ways = {user: Ways(home, block_set.asked_at.get(user)) for user, home in block_set.homes.items()}
    figures: dict[str, Any] = {scope: {} for scope in scopes}
    for way, ask in WAYS.items():
        for scope, is_everywhere in scopes.items():
            blocks = [ask(ways[question.user], question, is_everywhere) for question in questions]
            figures[scope][way] = measure_blocks(blocks)
    pieces = {
        user: {f"{piece.turn_id}#{piece.chunk}": piece for piece in list_pieces(home) if piece.text.strip()}
        for user, home in block_set.homes.items()
    }
    for peer in (peer for peer in PEERS if peer.name in options.only):
        file = AnswerFile(options.out / f"{name}-{peer.name}.jsonl")
        blocks_by_scope = PeerRun(peer, file, pieces).ask_all(questions, options.cache)
        for scope in scopes:
            if isinstance(blocks_by_scope, str):
                figures[scope][peer.name] = blocks_by_scope
            else:
                figures[scope][peer.name] = measure_blocks(blocks_by_scope[scope])
    return figures


def format_rows(name: str, figures: Mapping[str, Any]) -> str:
    """Return the rows of a set as a table of Markdown."""
    lines = []
    for scope, rows in figures.items():
        lines += [
            f"### {name}, {scope}",
            "",
            f"| system | {' | '.join(SHARES)} | falsely silent | cues | that do not answer | tokens |",
            "|---" * (len(SHARES) + 5) + "|",
        ]
        for system, row in rows.items():
            if isinstance(row, str):
                lines.append(f"| {system} | {row} |" + " |" * (len(SHARES) + 3))
                continue
            shares = " | ".join(_format_share(row[share]) for share in SHARES)
            means = " | ".join(f"{row[mean]:.1f}" for mean in ("cues", "unhelpful"))
            false_silence = f"{100 * row['false silence']:.1f}"
            lines.append(f"| {system} | {shares} | {false_silence} | {means} | {row['tokens']:.0f} |")
        lines.append("")
    return "\n".join(lines)


def _format_share(share: Mapping[str, float] | None) -> str:
    if share is None:
        return "–"
    return f"{100 * share['at']:.1f} [{100 * share['low']:.1f}, {100 * share['high']:.1f}]"


def list_sources(name: str, options: argparse.Namespace) -> list[Path]:
    """Return the files of a set; the questions about transcripts are joined into one file."""
    if name == "shipped":
        return [SHIPPED]
    if name in DIALOGUES:
        return [options.data / name]
    joined = options.out / "coding-questions.jsonl"
    joined.write_text("".join(path.read_text(encoding="utf-8") for path in options.questions), encoding="utf-8")
    return [joined, options.transcripts]


def _show(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with the sets of dialogues")
    parser.add_argument("--transcripts", type=Path, default=DATA.parent / "transcripts")
    parser.add_argument(
        "--questions", type=Path, nargs="*", default=[QUESTIONS / "coding.jsonl", QUESTIONS / "silence.jsonl"],
        help="files of questions about the transcripts",
    )  # fmt: skip
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "peers", help="where the peers are installed")
    parser.add_argument("--out", type=Path, default=OUT / "peers-block", help="answers, homes and figures")
    parser.add_argument("--sets", nargs="*", default=SETS, choices=SETS)
    parser.add_argument("--only", nargs="*", default=list(MODES), choices=list(MODES))
    options = parser.parse_args()
    options.cache, options.out = options.cache.resolve(), options.out.resolve()
    for folder in (options.cache, options.out):
        folder.mkdir(parents=True, exist_ok=True)
    ENVIRONMENT["PERDURE_PEER_VECTORS"] = os.environ.get("PERDURE_PEER_VECTORS", str(options.out / "vectors.db"))
    for name in options.sets:
        sources = list_sources(name, options)
        if missing := [str(source) for source in sources if not source.exists()]:
            print(f"{name}: skipped, there is no {missing[0]}")
            continue
        with open_set(sources, options.out / "homes" / name, vectors=True) as block_set:
            figures = measure_set(name, block_set, options)
        (options.out / f"{name}.json").write_text(json.dumps({"machine": machine(), **figures}, indent=1) + "\n")
        print(format_rows(name, figures), flush=True)


if __name__ == "__main__":
    main()
