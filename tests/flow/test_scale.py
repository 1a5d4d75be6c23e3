"""The measurement of many users: bulk loading writes what the product writes, the simulator agrees with formulas."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime

import pytest

import perdure
from perdure.archive.archive import Delta
from perdure.types import Origin

scale = pytest.importorskip("benchmarks.scale", reason="the benchmarks are not here (run from the checkout)")

from benchmarks.scale import fill, load, measure, model, texts  # noqa: E402
from benchmarks.scale.server import connect_as_superuser, find_schema, make_home  # noqa: E402
from benchmarks.scale.simulate import Cores, Pool, Process, Simulation, Take, Wait, Work  # noqa: E402

from rig.postgres import PostgresServer  # noqa: E402


@pytest.fixture(scope="module")
def server():
    postgres = PostgresServer()
    yield postgres
    postgres.close()


@pytest.fixture
def home(server, tmp_path):
    """A home with an empty index in a database of its own: (folder, database)."""
    database = server.create_database()
    path = make_home(tmp_path / "home", server, database)
    with perdure.open(path, user="u1") as opened:
        opened.index(create=True)
    return path, database


# loading ----------------------------------------------------------------------------------------------------------


def test_bulk_load_writes_what_the_product_writes(server, home, tmp_path):
    path, database = home
    with connect_as_superuser(server, database) as connection:  # noqa: SIM117 - the load ends before the connection
        with load.begin_load(connection, find_schema(server, database), with_vectors=False) as bulk:
            for user in (1, 2):
                bulk.add_user(f"u{user}", texts.make_sessions(user, 90))
    deltas = [
        Delta(Origin("messages", session.name, session.name), f"u{user}", "bench", session.lines,
              project=session.project)
        for user in (1, 2) for session in texts.make_sessions(user, 90)
    ]  # fmt: skip
    with perdure.open(tmp_path / "other", user="u1") as other:
        other.archive.store(deltas, now=datetime.now(UTC), tombstones={})
        other.upkeep.catch_up()
        expected = other.upkeep.digest()
    with perdure.open(path, user="u1") as loaded:
        assert loaded.upkeep.digest() == expected


def test_copies_are_users_of_their_own(server, home):
    path, database = home
    filled = fill.fill_users(server, database, n_made=2, n_copies=1, n_chunks=60)
    assert (filled.n_users, filled.n_chunks) == (4, 2 * filled.n_made)
    told = []
    for user in ("u1", "u4"):
        (question,) = texts.make_questions(1 if user == "u1" else 2, 1, n_sessions=1)
        with perdure.open(path, user=user, read_only=True) as opened:
            recalled = opened.recall(question, mode="keyword")
            assert recalled.cues
            told.append((user, [cue.turn_id for cue in recalled.cues]))
    assert measure.count_foreign(server, database, told) == (sum(len(turns) for _, turns in told), 0)
    swapped = [("u4", told[0][1]), ("u1", told[1][1])]
    assert measure.count_foreign(server, database, swapped)[1] == sum(len(turns) for _, turns in told)


# the simulator ----------------------------------------------------------------------------------------------------


def simulate_queue(
    n_servers: int, arrivals: float, service: float, n: int, *, shares_cores: bool = False
) -> list[float]:
    """Return the seconds that each of n jobs is in a queue M/M/c, or on cores that are shared."""
    rng, simulation, times = random.Random(1), Simulation(), []
    pool, cores = Pool(n_servers), Cores(simulation, n_servers)

    def job() -> Process:
        began_s = simulation.now_s
        if shares_cores:
            yield Work(cores, rng.expovariate(service))
        else:
            yield Take(pool)
            yield Wait(rng.expovariate(service))
            pool.release()
        times.append(simulation.now_s - began_s)

    def arrive() -> Process:
        for _ in range(n):
            yield Wait(rng.expovariate(arrivals))
            simulation.start(job())

    simulation.start(arrive())
    simulation.run(2 * n / arrivals)
    return times


def test_one_server_is_as_the_formula_says():
    """M/M/1 with arrivals 0.7, service 1: the time in it is exponential with rate 0.3; mean 1/0.3, p95 ln 20 / 0.3."""
    times = sorted(simulate_queue(1, 0.7, 1.0, 60_000))
    assert sum(times) / len(times) == pytest.approx(1 / 0.3, rel=0.05)
    assert times[int(0.95 * len(times))] == pytest.approx(math.log(20) / 0.3, rel=0.05)


def test_two_servers_are_as_the_formula_says():
    """M/M/2 with arrivals 1.4 and service 1: use 0.7, so the mean time is 1 / (1 - 0.7²) = 1.961."""
    times = simulate_queue(2, 1.4, 1.0, 60_000)
    assert sum(times) / len(times) == pytest.approx(1 / (1 - 0.49), rel=0.05)


def test_a_shared_core_has_the_mean_of_a_queue():
    """M/M/1 with shared time has the mean of first come, first served: 1/0.3."""
    times = simulate_queue(1, 0.7, 1.0, 60_000, shares_cores=True)
    assert sum(times) / len(times) == pytest.approx(1 / 0.3, rel=0.05)


def test_a_smaller_lane_goes_first():
    simulation, pool, order = Simulation(), Pool(1), []

    def job(name: str, lane: int) -> Process:
        yield Take(pool, lane)
        yield Wait(1)
        order.append(name)
        pool.release()

    for name, lane in (("first", 2), ("bulk", 2), ("ingest", 1), ("query", 0)):
        simulation.start(job(name, lane))
    simulation.run(10)
    assert order == ["first", "query", "ingest", "bulk"]


# the model --------------------------------------------------------------------------------------------------------

INPUTS = {
    "user": {"chunks_held": 3200, "active_share": 0.5},
    "machine": {"memory_gib": 3, "memory_of_processes_gib": 2},
    "disk": {"reads_a_second": 1000},
}


def test_reads_follow_from_sizes_and_memory():
    """100 sessions, each in 5 + 1 pages of vectors (32 x 1,024 B = 4 pages, and one for the edge: 5) and 1 + 1 of
    chunks (32 x 100 B): 7 pages, 700 in all, 0.7 s. 1,000 users, half of them active, want 2.87 GB of 1.074 GB.
    """
    cold_share, read_s = model.estimate_reads(INPUTS, {"slab_row": 1024, "chunk": 100}, 1000)
    assert read_s == pytest.approx(0.7)
    assert cold_share == pytest.approx(1 - 1.074 / (500 * 700 * 8192 / 1e9))
    assert model.estimate_reads(INPUTS, {"slab_row": 1024, "chunk": 100}, 100)[0] == 0


def test_an_idle_machine_answers_in_the_time_of_the_work():
    costs = model.Costs((0.05,), 0.03, 0.002, 0.01, 0.0)
    run = model.simulate_real_run(costs, n_workers=0, rate=0.1, n_askers=4, n_cores=2, has_index_work=False)
    assert run["p50 ms"] == pytest.approx(80, abs=0.1)
    busy = model.simulate_real_run(costs, n_workers=2, rate=0, n_askers=4, n_cores=2, has_index_work=False)
    assert busy["vectors a second"] == pytest.approx(200, rel=0.02), "two cores, 10 ms a vector"
