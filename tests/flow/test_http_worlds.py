"""Random worlds of users and grants, asked over HTTP: no answer holds anything that its asker may not read."""

import pytest

from perdure.errors import UsageError
from perdure.sharing.grants import GrantCache, Grants
from perdure.testing import FakeEmbedder
from perdure.types import Identity
from rig.worlds import Maker, build, leaks

pytest.importorskip("uvicorn")
N_WORLDS = 24  # a few dozen requests each; `python -m benchmarks.privacy` asks many more without a socket


MESSAGE = "what of the anchor and the buoy in the harbour?"
LISTS = ("runs/forest?flat=true", "memories?every=true&limit=100", "grants", "machines", "cards", "floor", "me")


def give(place, worlds):
    """The grants of these worlds as their owners give them; what cannot be given is no grant."""
    watch = GrantCache(place)
    for world in worlds:
        for grant in world.granted():
            if grant.team:  # `build` gave it
                continue
            try:
                Grants(place, grant.owner, watch).give(grant.grantee, grant.scope, grant.value, until_at=grant.until_at)
            except UsageError:
                assert grant.value not in {run.run_id for run in world.runs}


def asked(ask, world):
    """(what was asked, the answer) of everything that reads, as `testing.worlds.answers` names it."""
    for query in world.queries:
        for mode in ("keyword", "hybrid", "semantic"):
            yield (
                f"search {mode} {query}",
                ask("POST", "/api/runs/search", {"query": query, "mode": mode, "limit": 100}),
            )
        yield f"recall {query}", ask("POST", "/api/recall", {"message": query, "all_projects": True})
        yield f"memories {query}", ask("POST", "/api/memories/search", {"query": query, "limit": 100})
    for path in (
        "runs/forest?flat=true",
        "memories?every=true&limit=100",
        "grants",
        "machines",
        "cards",
        "floor",
        "me",
    ):
        yield path, ask("GET", f"/api/{path}")
    for run in world.looked_at:
        yield f"run {run.run_id}", ask("GET", f"/api/runs/{run.run_id}")
        yield f"jsonl {run.run_id}", ask("GET", f"/api/runs/{run.run_id}/jsonl")
        yield f"below {run.run_id}", ask("GET", f"/api/runs/{run.run_id}/descendants?limit=100")
        yield f"tree {run.run_id}", ask("GET", f"/api/runs/forest?flat=true&root_run_id={run.run_id}")
    for _, _, memory in world.memories:
        yield f"memory {memory.memory_id}", ask("GET", f"/api/memories/{memory.memory_id}")


def plain(answers):
    """Bodies; in the place of a 404 its name. Nothing is a fault."""
    for name, (status, body, _) in answers:
        assert status in (200, 400, 404), (name, status, body)
        missing = "MemoryMissing" if name.startswith("memory ") else "NotFound"
        yield name, missing if status == 404 else body.decode() if isinstance(body, bytes) else body


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_answer_holds_unreadable_data(served, tmp_path):
    maker, place = Maker(77), tmp_path / "home"
    worlds = [maker.world() for _ in range(N_WORLDS)]
    build(place, worlds).close()
    give(place, worlds)
    home = served(
        "[memories]\nstated = false\n[server]\nrequests_per_minute = 1000000", embedder=FakeEmbedder(dimension=16)
    )
    n_told = 0
    for number, world in enumerate(worlds):
        secret = f"reader-{number}"
        home.authority.secrets[secret] = Identity(world.reader.user, "box", f"m-{number}")
        answers = list(plain(asked(type(home.nobody)(home.address, secret), world)))
        n_told += sum(answer not in ("NotFound", "MemoryMissing") for _, answer in answers)
        assert leaks(world, answers) == [], world.reader
    assert n_told > N_WORLDS * 20
