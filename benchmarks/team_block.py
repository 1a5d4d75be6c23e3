"""What a block holds where three people work on the same projects and share them, beside each alone.

The transcripts of the coding questions are dealt to three users of one home, by the name of their file. A question is
asked of the user whose transcript answers it, and of the next one, before and after everybody shares every project with
the team. So it tells what sharing brings to the one who did not do the work, and what it costs the one who did.

    python -m benchmarks.team_block ../shared/data/transcripts           # about four minutes on two cores
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import describe_run, keep_result
from perdure.eval.block_quality import measure_blocks
from perdure.eval.block_sets import Block, BlockQuestion
from perdure.eval.block_ways import Ways
from perdure.eval.datasets import read_rows
from perdure.home import Home, open_home
from perdure.index import runs

_QUESTIONS = Path(__file__).parent / "questions"
PEOPLE = ("ada", "bob", "eve")
OWNER, TEAM = "mira", "all"
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
QUESTION_FILES = ("coding", "silence")


class Asked(NamedTuple):
    """A question, and the transcripts that answer it; none for one that deserves silence."""

    question: BlockQuestion
    answering_users: frozenset[str]


def choose_user(name: str) -> str:
    """Return the user whose transcript a file is.

    >>> choose_user("a.jsonl") in PEOPLE
    True
    """
    return PEOPLE[hashlib.sha256(name.encode()).digest()[0] % len(PEOPLE)]


def read_questions() -> list[Asked]:
    """Return the questions that this repository carries, each asked from a project."""
    rows = [row for name in QUESTION_FILES for row in read_rows(_QUESTIONS / f"{name}.jsonl")]
    somewhere = next(row["project"] for row in rows if row["project"])
    return [
        Asked(
            BlockQuestion(row["question"], "", row["project"] or somewhere, tuple(row["accept"])),
            frozenset(map(choose_user, row.get("transcripts", ()))),
        )
        for row in rows
    ]


def fill(home: Home, user: str, transcripts: Sequence[Path]) -> None:
    """Let a user import their transcripts."""
    own = [path for path in transcripts if choose_user(path.name) == user]
    home.import_files(own)
    home.upkeep.catch_up()
    home.upkeep.embed()
    print(f"{user}: {len(own)} transcripts", flush=True)


def share_all(folder: Path) -> None:
    """Share every project of everybody with the team, whenever it began."""
    with open_home(folder, user=OWNER) as owner:
        owner.sharing.teams.set_rule(TEAM)
        for user in PEOPLE:
            owner.sharing.teams.add(TEAM, user)
    for user in PEOPLE:
        with open_home(folder, user=user) as home:
            for project in filter(None, runs.list_names(home.index(), home.principal, "project")):
                home.sharing.share(f"@{TEAM}", "project", project, since_at=LONG_AGO)


def ask(home: Home, user: str, questions: Sequence[Asked], *, is_everywhere: bool) -> dict[str, list[Block]]:
    """Ask all questions of one user; return the blocks by who can answer."""
    ways = Ways(home, None)
    blocks: dict[str, list[Block]] = {}
    for question, answering_users in questions:
        part = "nobody" if not answering_users else "own" if user in answering_users else "colleague"
        blocks.setdefault(part, []).append(ways.recall(question, is_everywhere))
    return blocks


def measure(folder: Path, questions: Sequence[Asked]) -> dict[str, Any]:
    """Return the figures of all users together: scope -> who has the answer -> figures."""
    figures: dict[str, Any] = {}
    for scope, is_everywhere in (("in its project", False), ("all projects", True)):
        parts: dict[str, list[Block]] = {}
        for user in PEOPLE:
            with open_home(folder, user=user) as home:
                for part, blocks in ask(home, user, questions, is_everywhere=is_everywhere).items():
                    parts.setdefault(part, []).extend(blocks)
        figures[scope] = {part: {"n": len(blocks), **measure_blocks(blocks)} for part, blocks in parts.items()}
    return figures


def render(result: Mapping[str, Any]) -> str:
    """Format the result as a table."""
    lines = [
        "| scope | the answer is | sharing | n | told | first | silent | cues | unhelpful | tokens |",
        "|" + "---|" * 10,
    ]
    for scope in result["before"]:
        for part in result["before"][scope]:
            for sharing in ("before", "after"):
                row = result[sharing][scope][part]
                shares = [
                    f"{100 * row[name]['at']:.0f} %" if row[name] else "–" for name in ("told", "first", "silent")
                ]
                means = [f"{row[name]:.1f}" for name in ("cues", "unhelpful", "tokens")]
                lines.append(f"| {scope} | {part} | {sharing} | {row['n']} | {' | '.join([*shares, *means])} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("transcripts", type=Path, help="the folder with the transcripts")
    parser.add_argument("--keep", action="store_true", help="keep the result in benchmarks/results")
    options = parser.parse_args()
    transcripts = sorted(path for path in options.transcripts.rglob("*") if path.is_file())
    questions = read_questions()
    with tempfile.TemporaryDirectory(prefix="perdure-team-") as scratch:
        folder = Path(scratch) / "home"
        folder.mkdir(mode=0o700)
        (folder / "config.toml").write_text(f'user = "{OWNER}"\n[memories]\nstated = false\n')
        for user in PEOPLE:
            with open_home(folder, user=user) as home:
                fill(home, user, transcripts)
        before = measure(folder, questions)
        share_all(folder)
        result = {**describe_run(), "before": before, "after": measure(folder, questions)}
    if options.keep:
        keep_result("team-block", result)
    print(render(result))


if __name__ == "__main__":
    main()
