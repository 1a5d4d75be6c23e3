"""Who a credential stands for, which machines speak for a user, and what users let each other read."""

from __future__ import annotations

import dataclasses

import perdure
from perdure.authority.grants import Given
from perdure.authority.machines import Machine
from perdure.errors import NotFound
from perdure.surfaces.http.answers import API, Answer, Json, action, listed, one
from perdure.surfaces.http.calls import Call
from perdure.surfaces.http.faults import Refused

MACHINES = f"{API}/machines"
GRANTS = f"{API}/grants"


def me(call: Call) -> Answer:
    """Who the caller is."""
    said = {**dataclasses.asdict(call.identity), "version": perdure.__version__}
    actions = [
        action("search what was said", "POST", f"{API}/runs/search"),
        action("see your machines", "GET", MACHINES),
    ]
    return Answer(one(said, {"self": f"{API}/me", "machines": MACHINES, "grants": GRANTS}, actions=actions))


# machines -------------------------------------------------------------------------------------------------------


def machines(call: Call) -> Answer:
    """The machines that speak for the caller; those of everybody for an admin who asks so."""
    asked = call.query
    if asked.everybody and not call.identity.is_admin:
        raise _forbidden()
    user = None if asked.everybody else call.identity.user
    page = call.page("machines", asked.everybody, asked.every)
    shown, following = page.of(call.home.machines.listed(user, every=asked.every))
    return Answer(listed(list(map(_machine, shown)), following, {"self": MACHINES}))


def _machine(machine: Machine) -> Json:
    """A machine, and what may be done with it."""
    here = f"{MACHINES}/{machine.machine_id}"
    actions = [action("let it speak no more", "DELETE", here)] if machine.revoked_at is None else []
    return {**dataclasses.asdict(machine), "_links": {"machines": MACHINES}, "next_actions": actions}


def register(call: Call) -> Answer:
    """Let a machine speak for a user. Its secret is in this answer, and nowhere else ever."""
    user = call.body.user or call.identity.user
    if user != call.identity.user and not call.identity.is_admin:
        raise _forbidden()
    machine, secret = call.home.machines.register(user, call.body.name, by=call.identity.machine_id)
    return Answer({**_machine(machine), "secret": secret}, 201, made=machine.machine_id)


def again_machine(call: Call, made: str) -> Answer:
    """The machine that the first request registered, while it may speak; its secret was shown then."""
    machine = _owned(call, made)
    if machine.revoked_at:
        raise NotFound
    lost = "if its secret is lost, revoke it, and register another under a new Idempotency-Key"
    actions = [action(lost, "DELETE", f"{MACHINES}/{machine.machine_id}")]
    return Answer({**_machine(machine), "secret": None, "next_actions": actions})


def _owned(call: Call, machine_id: str) -> Machine:
    """The machine of this id, of the caller's, or of anybody's for an admin. Raises NotFound."""
    user = None if call.identity.is_admin else call.identity.user
    for machine in call.home.machines.listed(user, every=True):
        if machine.machine_id == machine_id:
            return machine
    raise NotFound


def revoke(call: Call) -> Answer:
    """Let a machine speak no more, from its next request on."""
    machine = _owned(call, call.path["machine_id"])
    done = call.home.machines.revoke(machine.machine_id, machine.user)
    return Answer(_machine(done))


def _forbidden() -> Refused:
    return Refused(403, "forbidden", "Only an admin of this home may do that.")


# grants ---------------------------------------------------------------------------------------------------------


def grants(call: Call) -> Answer:
    """What the caller lets others read; and under `to_me` what others let the caller read."""
    page = call.page("grants", call.query.every)
    shown, following = page.of(call.home.grants.given(every=call.query.every))
    body = listed(list(map(_grant, shown)), following, {"self": GRANTS})
    return Answer({**body, "to_me": list(map(_received, call.home.grants.received(every=call.query.every)))})


def _grant(given: Given) -> Json:
    """A grant of the caller's, and what may be done with it."""
    here = f"{GRANTS}/{given.grant.grant_id}"
    actions = [action("share it no more", "DELETE", here)] if given.revoked_at is None else []
    return {**_received(given), "next_actions": actions}


def _received(given: Given) -> Json:
    said = {**dataclasses.asdict(given.grant), "given_at": given.given_at, "revoked_at": given.revoked_at}
    said["declined_at"] = given.declined_at
    return {**said, "_links": {"grants": GRANTS}, "next_actions": []}


def share(call: Call) -> Answer:
    """Let another user read what is in a scope, masked, now and later."""
    said = call.body
    given = call.home.share(said.grantee, said.scope, said.value, until_at=said.until_at)
    return Answer(_grant(given), 201, made=given.grant.grant_id)


def again_grant(call: Call, made: str) -> Answer:
    """The grant that the first request gave, while it stands."""
    for given in call.home.grants.given():
        if given.grant.grant_id == made:
            return Answer(_grant(given))
    raise NotFound


def unshare(call: Call) -> Answer:
    """Share it no more, from the next question on; or read it no more, where another shares it with the caller."""
    name, grants_ = call.path["grant_id"], call.home.grants
    if any(given.grant.grant_id == name for given in grants_.given(every=True)):
        return Answer(_grant(grants_.revoke(name)))
    return Answer(_received(grants_.decline(name)))
