"""The figures of the README and of the documents are those of the kept results.

A document says beside a figure where it comes from: `<!-- figure: 88 % = table/coding.json#parts/… -->`. The text
before `=` stands in the same paragraph, or row, and is what stands at that path, rounded as it is written: a number, or
an estimate with its interval. With % (in the text, or behind the path) the value is a share.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MARK = re.compile(r"<!-- figure: (.+?) = ([\w./-]+\.json)#(.+?)( %)? -->")
NUMBER = re.compile(r"−?\d[\d,]*(?:\.\d+)?")

pytestmark = pytest.mark.skipif(not RESULTS.exists(), reason="the benchmarks are not here (run from the checkout)")


def list_marks() -> Iterator[tuple[str, str, str, str, str, str]]:
    """Yield (page, its block, text of the figure, result file, path, " %" or "") for each mark."""
    for page in PAGES:
        for block in re.split(r"\n\s*\n", page.read_text(encoding="utf-8")):
            rows = block.splitlines() if block.lstrip().startswith("|") else [block]
            for row in rows:
                for found in MARK.findall(row):
                    yield str(page.relative_to(ROOT)), MARK.sub("", row), *found


def read_values(file: str, path: str) -> list[float]:
    """Return the number at a path, or of an estimate also the ends of its interval."""
    value: Any = json.loads((RESULTS / file).read_text(encoding="utf-8"))
    for name in path.split("/"):
        value = value[int(name)] if isinstance(value, list) else value[name]
    return [value[name] for name in ("at", "low", "high")] if isinstance(value, dict) else [float(value)]


def is_true(text: str, values: list[float]) -> bool:
    """Return True if the numbers of a figure, as they are written, are the first of the values."""
    numbers = [number.strip(",").replace(",", "").replace("−", "-") for number in NUMBER.findall(text)]
    assert numbers, text
    pairs = zip(numbers, [100 * value if "%" in text else value for value in values], strict=False)
    return len(numbers) <= len(values) and all(
        abs(value - float(number)) <= 0.5 * 10 ** -len(number.partition(".")[2]) + 1e-9 for number, value in pairs
    )


MARKS = list(list_marks())


@pytest.mark.parametrize("mark", MARKS, ids=[f"{mark[0]}: {mark[2]}" for mark in MARKS])
def test_figure_is_that_of_its_result(mark: tuple[str, str, str, str, str, str]) -> None:
    _, block, text, file, path, unit = mark
    assert text in block
    assert is_true(text + unit, read_values(file, path)), read_values(file, path)


@pytest.mark.parametrize(
    ("text", "values", "is_so"),
    [
        ("88 %", [0.8846], True), ("87 %", [0.8846], False), ("2,325", [2325], True), ("0.9 x", [0.86], True),
        ("57.8", [57.86], False), ("58 % [48, 67]", [0.5779, 0.4795, 0.6689], True), ("58 %", [0.5779, 0.4, 0.7], True),
        ("58 % [48, 68]", [0.5779, 0.4795, 0.6689], False), ("58 % [48, 67]", [0.5779], False),
        ("−8 % [−29, 12]", [-0.0833, -0.2917, 0.125], True), ("8 % [−29, 12]", [-0.0833, -0.2917, 0.125], False),
    ],
)  # fmt: skip
def test_figure_is_compared_as_it_is_rounded(text: str, values: list[float], is_so: bool) -> None:
    assert is_true(text, values) == is_so


@pytest.mark.parametrize("path", sorted(RESULTS.rglob("*.json")), ids=lambda path: path.name)
def test_result_names_commit_command_machine_and_load(path: Path) -> None:
    result = json.loads(path.read_text(encoding="utf-8"))
    assert re.fullmatch(r"[0-9a-f]{12}\+?", result["commit"])
    assert result["command"].startswith(("python -m benchmarks", "perdure "))
    assert {"cpu", "n_cpus", "load", "at", "python"} <= result["machine"].keys()


def test_each_measured_claim_of_the_readme_has_its_result() -> None:
    rows = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    claims = [row for row in rows if "[measured](" in row and re.search(r"\d+ %|\d,\d{3}", MARK.sub("", row))]
    assert claims
    assert [row for row in claims if not MARK.search(row)] == []
