"""What stands in the list of machines."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from perdure.authority.machines import Machine
from perdure.errors import IndexDamaged, IndexMissing
from perdure.index.growth import Brought
from perdure.surfaces.page.views.machines import _brought, entries

AT = datetime(2026, 3, 1, tzinfo=UTC)


def test_what_a_machine_brought_is_told_of_the_visitors_own_alone():
    found = [Machine("m-1", "ada", "laptop", AT), Machine("m-2", "bob", "desk", AT)]
    brought = {"laptop": Brought(3, AT), "desk": Brought(2, AT), "old": Brought(1, AT)}
    listed = entries(found, brought, "ada", "desk")
    assert [(one.name, one.machine and one.machine.user, one.brought and one.brought.n_runs) for one in listed] == [
        ("laptop", "ada", 3), ("desk", "bob", None), ("desk", None, 2), ("old", None, 1),
    ]  # fmt: skip
    assert [one.is_here for one in listed] == [False, False, True, False]


@pytest.mark.parametrize("fault", [IndexMissing("x"), IndexDamaged("x")])
def test_machines_are_listed_whatever_is_wrong_with_the_index(fault):
    def brought():
        raise fault

    assert _brought(SimpleNamespace(home=SimpleNamespace(brought=brought))) == {}
