"""The words of the glossary: each is used in the code, and none of those that it bans stands in code or docs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure import types
from rig.source import parse

pytestmark = pytest.mark.xdist_group("source")  # one worker parses the package for all of them

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
PAGES = sorted(page for page in [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"] if page != GLOSSARY)
CODE = sorted(path for path in Path(perdure.__file__).parent.rglob("*.py"))
TEXT = "\n".join(path.read_text().replace("_", " ").lower() for path in CODE)
PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")  # of a name: `MineJob`, `mine_job`


def rows(title: str) -> list[list[str]]:
    """The cells of the glossary's table below a title."""
    body = GLOSSARY.read_text().split(title)[1].split("\n## ")[0]
    table = [row.strip("| ").split("|") for row in body.splitlines() if row.startswith("|")]
    return [[cell.strip() for cell in row] for row in table[2:]]


def said(cell: str) -> list[str]:
    return re.findall(r"[a-z][a-z ]+", re.sub(r"\(.*?\)", "", cell))


BANNED = {word: instead for cell, instead in rows("## Not said") for word in said(cell)}
TERMS = sorted({word.strip() for row in rows("# Glossary") for word in said(row[0])})


def names(path: Path) -> Iterator[str]:
    """Every name that a module gives to something."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def is_banned(word: str) -> bool:
    return word in BANNED or word.removesuffix("s") in BANNED


def test_no_name_in_the_code_is_a_banned_word() -> None:
    found = [
        f"{path.name}: {name}" for path in CODE for name in [path.stem, *names(path)]
        if any(is_banned(part.lower()) for part in PARTS.findall(name))
    ]  # fmt: skip
    assert len(BANNED) > 10 and found == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_uses_a_banned_word(page: Path) -> None:
    text = re.sub(r"\b[A-Z]+(?:_[A-Z]+)+\b", "", page.read_text())  # a variable of the environment has its name
    words = re.findall(r"[a-z]+", text.lower())
    assert [word for word in words if is_banned(word)] == []


@pytest.mark.parametrize("term", TERMS)
def test_a_term_is_used_in_the_code(term: str) -> None:
    """In a name, or where a docstring or a message needs it."""
    form = re.compile(rf"\b{re.escape(term)}s?\b")
    assert form.search(TEXT)


NON_GOALS = ("federation", "signed requests", "pds", "invite links", "entity linking")


@pytest.mark.parametrize("name", NON_GOALS)
def test_non_goal_names_its_place_in_the_code(name: str) -> None:
    """P17; the files and types that it names are there."""
    table = [line.split("|") for line in (ROOT / "docs" / "non-goals.md").read_text().splitlines() if line[:1] == "|"]
    (place,) = [cells[2].strip() for cells in table if name in cells[1].lower()]
    assert place
    for named in re.findall(r"`([\w./]+)`", place):
        package, _, attribute = named.partition(".")
        if named.endswith(".py"):
            assert (Path(perdure.__file__).parent / named).is_file()
        elif attribute and package == "types":
            assert hasattr(types, attribute)
