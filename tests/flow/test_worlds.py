"""Random worlds against the oracle: an answer holds nothing that may not be read, and does not change with it.

`python -m benchmarks.privacy` asks many more.
"""

import pytest

from rig.worlds import Maker, answers, build, identifiers, leaks

N_WORLDS, N_HOMES = 300, 4
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
