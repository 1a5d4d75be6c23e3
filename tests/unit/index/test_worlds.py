"""Random worlds against the oracle: an answer holds nothing that may not be read, and does not change with it."""

import pytest

from perdure.testing.worlds import Maker, answers, build, identifiers, leaks

N_WORLDS, N_HOMES = 300, 4


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(N_HOMES))
def test_nothing_that_may_not_be_read_is_in_any_answer_or_shapes_it(tmp_path, seed):
    maker = Maker(seed)
    worlds = [maker.world() for _ in range(N_WORLDS // N_HOMES)]
    with (
        build(tmp_path / "as-it-is", worlds) as home,
        build(tmp_path / "hidden", [w.hidden() for w in worlds]) as other,
    ):
        for world in worlds:
            told = dict(answers(home, world))
            assert leaks(world, told.items()) == [], world.reader
            for name, answer in answers(other, world):
                if not name.startswith("recall"):  # which chooses by scores
                    assert identifiers(answer) == identifiers(told[name]), name
