"""Random worlds against the oracle: an answer holds nothing that may not be read, and does not change with it.

500 worlds on every run of the tests, on both engines; `python -m benchmarks.privacy` asks ten thousand.
"""

from pathlib import Path

import pytest
from msgspec.structs import replace

import perdure
from perdure import config as settings
from perdure.index import visibility
from perdure.types import Principal
from rig.postgres import PostgresServer
from rig.world_rounds import ask_round, ask_rounds, read_rounds
from rig.worlds import Maker, Reader, answers, build, identifiers, leaks

N_WORLDS = {"sqlite": 50, "postgres": 20}  # of a seed
SEEDS = {"sqlite": 8, "postgres": 5}
N_LEAVING = 12


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


@pytest.mark.slow
def test_somebody_who_leaves_changes_no_answer_but_their_own(tmp_path):
    """One of each world leaves and their private data is deleted: what the team keeps answers as before."""
    maker, n_kept = Maker(11), 0
    worlds = [maker.world() for _ in range(N_LEAVING)]
    place = tmp_path / "home"
    before, detached = {}, set()
    with build(place, worlds, vectors=False) as home:
        for number, world in enumerate(worlds):
            leaver = next((grant.owner for grant in world.team_grants), world.users[-1])
            reader = next((user for user in world.users if user != leaver), "nobody")
            kept = tuple(grant for grant in world.reader.granted if leaver not in (grant.owner, grant.grantee))
            world.reader = Principal(reader, tuple(replace(grant, grantee=reader) for grant in kept))
            before[number] = leaver, dict(answers(home, world))
    for number in before:
        with perdure.open(place, user=before[number][0]) as home:
            departure = home.sharing.leave()
            n_kept += len(departure.kept)
            detached |= {grant.value for grant in departure.kept if grant.scope == "memory"}  # it has another id then
            home.forgetting.erase_private(departure.kept)
    with Reader(place, settings.load(place), Principal("nobody"), writable=False) as home:
        for number, world in enumerate(worlds):
            after = list(answers(home, world))
            assert set(leaks(world, after)) <= {f"memory {name}: refused" for name in detached}, world.reader
            for name, answer in after:
                if name.startswith(("search keyword", "scan", "forest", "newest", "run ", "below ")):
                    assert identifiers(answer) == identifiers(before[number][1][name]), (name, world.reader)
    assert n_kept >= N_LEAVING // 2


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
