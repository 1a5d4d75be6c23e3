"""Random worlds against the oracle: an answer holds nothing that may not be read, and does not change with it.

`python -m benchmarks.privacy` asks many more.
"""

from dataclasses import replace

import pytest

import perdure
from perdure import config as settings
from perdure.types import Principal
from rig.worlds import Maker, Reader, answers, build, identifiers, leaks

N_WORLDS, N_HOMES = 300, 4
N_LEAVING = 12
N_TWICE = 20  # worlds of each home that are asked again where what may not be read says something else


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(N_HOMES))
def test_unreadable_data_neither_appears_in_nor_shapes_an_answer(tmp_path, seed):
    maker = Maker(seed)
    worlds = [maker.world() for _ in range(N_WORLDS // N_HOMES)]
    told = {}
    with build(tmp_path / "as-it-is", worlds) as home:
        for number, world in enumerate(worlds):
            told[number] = dict(answers(home, world))
            assert leaks(world, told[number].items()) == [], world.reader
    with build(tmp_path / "hidden", [world.hidden() for world in worlds[:N_TWICE]]) as home:
        for number, world in enumerate(worlds[:N_TWICE]):
            for name, answer in answers(home, world):
                if not name.startswith("recall"):  # which chooses by scores
                    assert identifiers(answer) == identifiers(told[number][name]), name


@pytest.mark.slow
def test_somebody_who_leaves_changes_no_answer_but_their_own(tmp_path):
    """One of each world leaves and their private data is deleted: what the team keeps answers as before."""
    maker, n_kept = Maker(11), 0
    worlds = [maker.world() for _ in range(N_LEAVING)]
    place = tmp_path / "home"
    before = {}
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
            home.forgetting.erase_private(departure.kept)
    with Reader(place, settings.load(place), Principal("nobody"), writable=False) as home:
        for number, world in enumerate(worlds):
            after = list(answers(home, world))
            assert leaks(world, after) == [], world.reader
            for name, answer in after:
                if name.startswith(("search keyword", "scan", "forest", "newest", "run ", "below ")):
                    assert identifiers(answer) == identifiers(before[number][1][name]), (name, world.reader)
    assert n_kept >= N_LEAVING // 2
