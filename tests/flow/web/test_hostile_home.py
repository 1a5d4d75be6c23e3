"""A home full of hostile texts answers hostile questions: with ten times the text in both, in at most some twelve times
the processor time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

import perdure
from perdure.home import Home
from perdure.surfaces.mcp import answers

from .conftest import _SETTINGS, House

PATTERNS = (
    "a.b.",
    "a b ",
    "x.y/z-",
    "password=",
    "[perdure-recall ",
    "数据。",
    "\n- ",
    "Aa ",
    "1. ",
    "é ",
    "**a",
    "<a ",
)
SHORT_CHARS, LONG_CHARS = 20_000, 200_000
ADDRESS_CHARS = 4_000  # of a question in an address
MAX_RATIO, FLOOR_S = 12, 1.0  # FLOOR_S: what the long text may take in any case
N_TRIES = 6


def repeat(pattern: str, n_chars: int) -> str:
    return pattern * (n_chars // len(pattern))


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """A home for each length, with one session for each pattern."""
    made = {}
    for n_chars in (SHORT_CHARS, LONG_CHARS):
        made[n_chars] = tmp_path_factory.mktemp("hostile") / "home"
        made[n_chars].mkdir(mode=0o700)
        (made[n_chars] / "config.toml").write_text(_SETTINGS)
        with perdure.open(made[n_chars], user="ada") as home:
            for number, pattern in enumerate(PATTERNS):
                row = {"role": "user", "content": repeat(pattern, n_chars), "timestamp": "2026-01-15T09:00:00Z"}
                home.capture(json.dumps(row).encode() + b"\n", runtime="messages", session=f"s{number}")
            home.upkeep.catch_up()
    return made


@pytest.fixture
def homes(places: dict[int, Path]) -> Iterator[dict[int, Home]]:
    opened = {n_chars: perdure.open(place, user="ada") for n_chars, place in places.items()}
    yield opened
    for home in opened.values():
        home.close()


def measure(ask: Callable[[], object]) -> float:
    started_s = time.process_time()
    ask()
    return time.process_time() - started_s


def is_slow(ask: Callable[[int], object]) -> bool:
    return all(
        measure(lambda: ask(LONG_CHARS)) > max(FLOOR_S, MAX_RATIO * measure(lambda: ask(SHORT_CHARS)))
        for _ in range(N_TRIES)
    )


SURFACES: dict[str, Callable[[Home, str], object]] = {
    "search": lambda home, question: home.search(question),
    "recall": lambda home, question: home.recall(question, all_projects=True),
    "MCP search": lambda home, question: answers.search(home, question, answers.ToolFilters()),
    "MCP context": lambda home, question: answers.build_context(home, question, cwd=None),
}


@pytest.mark.slow
@pytest.mark.parametrize("surface", SURFACES)
def test_hostile_questions_to_a_hostile_home_are_answered(surface: str, homes: dict[int, Home]) -> None:
    ask = SURFACES[surface]
    assert [
        pattern
        for pattern in PATTERNS
        if is_slow(lambda n_chars, pattern=pattern: ask(homes[n_chars], repeat(pattern, n_chars)))
    ] == []


@pytest.mark.slow
def test_hostile_turns_are_shown(homes: dict[int, Home]) -> None:
    shown = {
        n_chars: [(home, hit.turn_id) for hit in home.search("", limit=len(PATTERNS)).hits]
        for n_chars, home in homes.items()
    }
    assert all(len(turns) == len(PATTERNS) for turns in shown.values())
    assert not is_slow(lambda n_chars: [answers.show(home, turn_id) for home, turn_id in shown[n_chars]])


@pytest.mark.slow
def test_pages_of_a_hostile_home_are_shown(places: dict[int, Path]) -> None:
    houses = {n_chars: House(place, _SETTINGS) for n_chars, place in places.items()}
    try:
        visitors = {n_chars: house.visitor() for n_chars, house in houses.items()}
        turn_ids = {
            n_chars: [hit.turn_id for hit in house.opened.search("", limit=len(PATTERNS)).hits]
            for n_chars, house in houses.items()
        }

        def read(n_chars: int) -> None:
            addresses = [
                *(f"/turns/{turn_id}" for turn_id in turn_ids[n_chars]),
                *(f"/search?q={quote(repeat(pattern, ADDRESS_CHARS // 6))}" for pattern in PATTERNS),
            ]
            assert {visitors[n_chars].get(address).status for address in addresses} == {200}

        assert not is_slow(read)
    finally:
        for house in houses.values():
            house.close()
