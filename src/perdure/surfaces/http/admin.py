"""Identity, machines, grants and health over HTTP."""

from __future__ import annotations

import dataclasses

from msgspec import structs

import perdure
from perdure.errors import NotFound
from perdure.home import Home
from perdure.sharing.grants import GrantRecord
from perdure.sharing.machines import Machine
from perdure.surfaces.health_checks import count_covered_runs
from perdure.surfaces.http.calls import HttpCall
from perdure.surfaces.http.responses import (
    API_PATH,
    HttpRefusal,
    HttpResponse,
    Json,
    build_action,
    build_item,
    build_list,
)

MACHINES_PATH = f"{API_PATH}/machines"
GRANTS_PATH = f"{API_PATH}/grants"


def read_identity(call: HttpCall) -> HttpResponse:
    """Return the identity of the caller."""
    fields = {**structs.asdict(call.identity), "version": perdure.__version__}
    actions = [
        build_action("search turns", "POST", f"{API_PATH}/runs/search"),
        build_action("see your machines", "GET", MACHINES_PATH),
    ]
    return HttpResponse(
        build_item(
            fields, {"self": f"{API_PATH}/me", "machines": MACHINES_PATH, "grants": GRANTS_PATH}, actions=actions
        )
    )


# machines -------------------------------------------------------------------------------------------------------


def list_machines(call: HttpCall) -> HttpResponse:
    """List the machines of the caller; the machines of all users for an admin who asks for them."""
    query = call.query
    if query.everybody and not call.identity.is_admin:
        raise _refuse_not_admin()
    user = None if query.everybody else call.identity.user
    page = call.read_list_page("machines", query.everybody, query.every)
    shown, next_cursor = page.cut_items(call.home.sharing.machines.list_machines(user, include_revoked=query.every))
    return HttpResponse(build_list(list(map(_build_machine, shown)), next_cursor, {"self": MACHINES_PATH}))


def _build_machine(machine: Machine) -> Json:
    """Build the body of a machine, with the actions on it."""
    machine_path = f"{MACHINES_PATH}/{machine.machine_id}"
    actions = [build_action("revoke it", "DELETE", machine_path)] if machine.revoked_at is None else []
    return {**dataclasses.asdict(machine), "_links": {"machines": MACHINES_PATH}, "next_actions": actions}


def register_machine(call: HttpCall) -> HttpResponse:
    """Register a machine for a user. Its secret is in this answer and nowhere else, ever."""
    user = call.body.user or call.identity.user
    if user != call.identity.user and not call.identity.is_admin:
        raise _refuse_not_admin()
    machine, secret = call.home.sharing.machines.register(user, call.body.name, registered_by=call.identity.machine_id)
    return HttpResponse({**_build_machine(machine), "secret": secret}, 201, created_id=machine.machine_id)


def repeat_register(call: HttpCall, machine_id: str) -> HttpResponse:
    """Return the machine that the first request registered, unless it was revoked; its secret was shown then."""
    machine = _find_machine(call, machine_id)
    if machine.revoked_at:
        raise NotFound
    advice = "if its secret is lost, revoke it, and register another under a new Idempotency-Key"
    actions = [build_action(advice, "DELETE", f"{MACHINES_PATH}/{machine.machine_id}")]
    return HttpResponse({**_build_machine(machine), "secret": None, "next_actions": actions})


def _find_machine(call: HttpCall, machine_id: str) -> Machine:
    """Find a machine by id, among the caller's or, for an admin, among all. Raises NotFound."""
    user = None if call.identity.is_admin else call.identity.user
    for machine in call.home.sharing.machines.list_machines(user, include_revoked=True):
        if machine.machine_id == machine_id:
            return machine
    raise NotFound


def revoke_machine(call: HttpCall) -> HttpResponse:
    """Revoke a machine, from its next request on."""
    machine = _find_machine(call, call.path_params["machine_id"])
    revoked, outcome, _ = call.home.sharing.revoke_machine(machine.machine_id, machine.user)
    return HttpResponse({**_build_machine(revoked), "app_password": outcome})


def join_machine(call: HttpCall) -> HttpResponse:
    """Register a machine for the person who proves their DID. No credential of this home is needed."""
    body = call.body
    machine, secret = call.home.sharing.app_passwords.join(
        body.did, body.password_name, body.app_password, body.machine
    )
    return HttpResponse({**_build_machine(machine), "secret": secret}, 201)


def _refuse_not_admin() -> HttpRefusal:
    return HttpRefusal(403, "forbidden", "Only an admin of this home may do that.")


# grants ---------------------------------------------------------------------------------------------------------


def list_grants(call: HttpCall) -> HttpResponse:
    """List the grants of the caller, and under `to_me` the grants of others to the caller."""
    page = call.read_list_page("grants", call.query.every)
    shown, next_cursor = page.cut_items(call.home.sharing.grants.list_given(include_ended=call.query.every))
    body = build_list(
        [_build_grant(call.home, grant_record) for grant_record in shown], next_cursor, {"self": GRANTS_PATH}
    )
    return HttpResponse(
        {
            **body,
            "to_me": list(
                map(_build_received_grant, call.home.sharing.grants.list_received(include_ended=call.query.every))
            ),
        }
    )


def _build_grant(home: Home, grant_record: GrantRecord) -> Json:
    """Build the body of a grant of the caller, with how many runs it covers now and the actions on it."""
    grant_path = f"{GRANTS_PATH}/{grant_record.grant.grant_id}"
    actions = [build_action("stop sharing it", "DELETE", grant_path)] if grant_record.revoked_at is None else []
    n_runs = count_covered_runs(home, grant_record) if grant_record.revoked_at is None else None
    return {**_build_received_grant(grant_record), "runs_now": n_runs, "next_actions": actions}


def _build_received_grant(grant_record: GrantRecord) -> Json:
    fields = {
        **structs.asdict(grant_record.grant),
        "given_at": grant_record.given_at,
        "revoked_at": grant_record.revoked_at,
    }
    fields["declined_at"] = grant_record.declined_at
    return {**fields, "_links": {"grants": GRANTS_PATH}, "next_actions": []}


def share_scope(call: HttpCall) -> HttpResponse:
    """Let another user, or a team, read the content of a scope, masked, now and later."""
    body = call.body
    grant_record = call.home.sharing.share(
        body.grantee, body.scope, body.value, until_at=body.until_at, since_at=body.since_at
    )
    return HttpResponse(_build_grant(call.home, grant_record), 201, created_id=grant_record.grant.grant_id)


def repeat_share(call: HttpCall, grant_id: str) -> HttpResponse:
    """Return the grant that the first request made, unless it was revoked."""
    for grant_record in call.home.sharing.grants.list_given(include_ended=True):
        if grant_record.grant.grant_id == grant_id and grant_record.revoked_at is None:
            return HttpResponse(_build_grant(call.home, grant_record))
    raise NotFound


def revoke_grant(call: HttpCall) -> HttpResponse:
    """Revoke a grant of the caller from the next question on, or decline a grant of another user."""
    grant_id, grants = call.path_params["grant_id"], call.home.sharing.grants
    if any(grant_record.grant.grant_id == grant_id for grant_record in grants.list_given(include_ended=True)):
        return HttpResponse(_build_grant(call.home, grants.revoke(grant_id)))
    return HttpResponse(_build_received_grant(grants.decline(grant_id)))


def check_alive(call: HttpCall) -> HttpResponse:  # noqa: ARG001 - it needs nothing of the call
    """Say that the server answers, and nothing else."""
    return HttpResponse({"alive": True})


def read_health(call: HttpCall) -> HttpResponse:
    """Write, search and forget in a scratch home on the same disk; report how fresh the parts of this home are.

    503 when anything is wrong, so that a monitor need not read the body. Callers within a few seconds share
    one probe.
    """
    probe_result = call.server.probe.check_health(call.home)
    resident_health = call.server.read_health()
    problems = [*probe_result.problems, *resident_health.get("problems", [])]
    fields: Json = {
        "healthy": not problems,
        "problems": problems,
        "checked_at": probe_result.checked_at,
        "probe_ms": probe_result.took_ms,
    }
    if call.identity.is_admin:
        fields = {
            **resident_health,
            **fields,
            "waiting": call.server.count_waiting(),
            "depth_before_submit": resident_health.get("embedding", {}),
        }
    return HttpResponse(build_item(fields, {"self": f"{API_PATH}/health"}), 503 if problems else 200)
