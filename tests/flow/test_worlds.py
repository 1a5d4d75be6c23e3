"""Random worlds against the oracle: an answer holds nothing that may not be read, and does not change with it.

500 worlds on every run of the tests, on both engines; `python -m benchmarks.privacy` asks ten thousand.
"""

from pathlib import Path

import pytest

from perdure.index import visibility
from rig.postgres import PostgresServer
from rig.world_rounds import ask_round, ask_rounds, read_rounds

N_WORLDS = {"sqlite": 50, "postgres": 20}  # of a seed
SEEDS = {"sqlite": 8, "postgres": 5}


@pytest.fixture(scope="module")
def server():
    server = PostgresServer()
    yield server
    server.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS["sqlite"]))
def test_unreadable_data_neither_appears_in_nor_shapes_an_answer(tmp_path, seed):
    assert ask_round(tmp_path, seed, N_WORLDS["sqlite"]).wrong == ()


@pytest.mark.slow
@pytest.mark.xdist_group("postgres_worlds")  # one server
@pytest.mark.parametrize("seed", range(1000, 1000 + SEEDS["postgres"]))
def test_nor_in_an_answer_from_postgres(tmp_path, seed, server):
    result = ask_round(tmp_path, seed, N_WORLDS["postgres"], server=server)
    assert result.wrong == () and result.counts["answers"] > 40 * N_WORLDS["postgres"]


def test_worlds_of_the_normal_tests_are_five_hundred():
    assert sum(SEEDS[engine] * n_worlds for engine, n_worlds in N_WORLDS.items()) == 500


def test_rounds_go_on_behind_those_that_are_kept(tmp_path: Path):
    path = tmp_path / "rounds.jsonl"
    assert [one.seed for one in ask_rounds(path, range(2), 2)] == [0, 1]
    with path.open("a") as file:
        file.write('{"seed": 2, "eng')  # it was killed while it wrote
    assert [one.seed for one in ask_rounds(path, range(4), 2)] == [2, 3]
    assert [one.seed for one in read_rounds(path)] == [0, 1, 2, 3]
    assert sum(one.counts["worlds"] for one in read_rounds(path)) == 8
    assert list(ask_rounds(path, range(4), 2)) == []


def test_a_leak_is_found_and_kept(tmp_path: Path, monkeypatch):
    """With the test of who may read a run taken out, the worlds say so."""
    monkeypatch.setattr(visibility.ReadScope, "build_run_test", lambda *_, **__: "TRUE")
    (result,) = ask_rounds(tmp_path / "rounds.jsonl", range(5, 6), 6)
    assert len(result.wrong) > 10 and read_rounds(tmp_path / "rounds.jsonl") == [result]
