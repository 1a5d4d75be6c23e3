"""What stands in the list of machines."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from perdure.errors import IndexDamaged, IndexMissing
from perdure.index.statistics import MachineCaptures
from perdure.sharing.machines import Machine
from perdure.surfaces.web.views.sharing import _read_captures, list_machine_entries

AT = datetime(2026, 3, 1, tzinfo=UTC)


def test_captures_are_counted_for_the_visitors_own_machines():
    found = [Machine("m-1", "ada", "laptop", AT), Machine("m-2", "bob", "desk", AT)]
    brought = {"laptop": MachineCaptures(3, AT), "desk": MachineCaptures(2, AT), "old": MachineCaptures(1, AT)}
    listed = list_machine_entries(found, brought, "ada", "desk")
    assert [(one.name, one.machine and one.machine.user, one.brought and one.brought.n_runs) for one in listed] == [
        ("laptop", "ada", 3), ("desk", "bob", None), ("desk", None, 2), ("old", None, 1),
    ]  # fmt: skip
    assert [one.is_here for one in listed] == [False, False, True, False]


@pytest.mark.parametrize("fault", [IndexMissing("x"), IndexDamaged("x")])
def test_machines_are_listed_with_a_broken_index(fault):
    def brought():
        raise fault

    home = SimpleNamespace(runs=SimpleNamespace(captures_by_machine=brought))
    assert _read_captures(SimpleNamespace(home=home)) == {}
