"""`/machines`: which machines speak for whom, when each was last heard, letting one in and letting one speak no more.

The secret of a new machine stands in the one answer that makes it: never in an address, a log or a page that can be
opened again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.authority.machines import Machine
from perdure.errors import IndexFault, NotFound, UsageError
from perdure.index.growth import Brought
from perdure.surfaces import checks
from perdure.surfaces.page.visits import Answer, Moved, Shown, View, Visit

_NOWHERE = ("", "0.0.0.0", "[::]", "localhost", "[::1]")  # hosts by which no other machine can find this one


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the list: a machine that is registered, or one that only brought runs."""

    name: str
    machine: Machine | None
    brought: Brought | None = None
    is_here: bool = False  # it is where this home is


def machines(visit: Visit) -> Shown:
    """The list, and the form for another."""
    return _listed(visit)


def _listed(visit: Visit, *, name: str = "", user: str = "", error: str = "") -> Shown:
    wanted = {key: visit.query.get(key) == "1" for key in ("all", "everybody")}
    if wanted["everybody"] and not visit.identity.is_admin:
        raise NotFound("list of everybody's machines")
    whose = None if wanted["everybody"] else visit.home.user
    found = visit.home.machines.listed(whose, every=wanted["all"])
    listed = entries(found, _brought(visit), visit.home.user, _here(visit))
    values = {
        "title": "Machines", "entries": listed, "wanted": wanted, "name": name, "user": user, "error": error,
    }  # fmt: skip
    return Shown("machines.html", values, 400 if error else 200)


def _brought(visit: Visit) -> Mapping[str, Brought]:
    try:
        return visit.home.brought()
    except IndexFault:  # who may speak does not depend on what was indexed
        return {}


def _here(visit: Visit) -> str:
    """The machine that serves: that of the visitor's home is the one they came in from."""
    with visit.server.lent() as own:
        return own.config.machine


def entries(found: Sequence[Machine], brought: Mapping[str, Brought], user: str, here: str) -> list[Entry]:
    """Machines that are registered, and behind them those that are only known by what they captured.

    What a machine brought is told of the user's own alone. here: the machine that this home is on.
    """
    own = {machine.name for machine in found if machine.user == user}
    listed = [
        Entry(one.name, one, brought.get(one.name) if one.user == user else None, one.name == here and one.user == user)
        for one in found
    ]
    return [*listed, *(Entry(name, None, brought[name], name == here) for name in sorted(brought) if name not in own)]


def register(visit: Visit) -> Answer:
    """Let a machine speak for a user: the one page that shows its secret."""
    name, user = visit.form.get("name", "").strip(), visit.form.get("user", "").strip() or visit.home.user
    if user != visit.home.user and not visit.identity.is_admin:
        raise NotFound(user)
    try:
        machine, secret = visit.home.machines.register(user, name, by=visit.identity.machine_id)
    except UsageError as error:
        return _listed(visit, name=name, user=user, error=error.detail or str(error))
    values: dict[str, Any] = {"title": f"{machine.name} may speak", "machine": machine, "secret": secret}
    return Shown("machine_new.html", {**values, "joined": f"perdure join {_address(visit) or 'URL'}"}, 201)


def _address(visit: Visit) -> str:
    """Where another machine finds this home; empty where that cannot be said from here."""
    found = checks.address(visit.home.config.server, None)
    host, _, port = found.partition("://")[2].rpartition(":")
    return "" if host in _NOWHERE or host.startswith("127.") or port == "0" else found


def revoking(visit: Visit) -> Shown:
    """What it means to let a machine speak no more, before it is done."""
    machine = _owned(visit)
    brought = _brought(visit).get(machine.name) if machine.user == visit.home.user else None
    return Shown("machine_revoke.html", {"title": f"Revoke {machine.name}?", "machine": machine, "brought": brought})


def revoke(visit: Visit) -> Moved:
    """Let a machine speak no more."""
    machine = _owned(visit)
    done = visit.home.machines.revoke(machine.machine_id, machine.user)
    return Moved("/machines", f"{done.name} of {done.user} may speak no more, from its next request on.")


def _owned(visit: Visit) -> Machine:
    """The machine of the address: of the visitor's, or of anybody's for who sees to the home. Raises NotFound."""
    user = None if visit.identity.is_admin else visit.home.user
    for machine in visit.home.machines.listed(user, every=True):
        if machine.machine_id == visit.path["machine_id"]:
            return machine
    raise NotFound(visit.path["machine_id"])


ROWS: tuple[View, ...] = (
    View("GET", "/machines", machines, nav="machines"),
    View("POST", "/machines", register, nav="machines", desk="write"),
    View("GET", "/machines/{machine_id}/revoke", revoking, nav="machines"),
    View("POST", "/machines/{machine_id}/revoke", revoke, nav="machines", desk="write"),
)
