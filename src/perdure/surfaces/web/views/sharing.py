"""`/sharing` and `/machines`: grants between users, and the machines that may connect for a user.

The secret of a new machine is in the one answer that makes it: never in an address, a log or a page
that can be opened again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast, get_args

from perdure.errors import IndexFault, NotFound, TeamMissing, UsageError
from perdure.home import Home
from perdure.index.statistics import MachineCaptures
from perdure.sharing.grants import BEGINNING, TEAM_SIGN, GrantRecord
from perdure.sharing.machines import Machine
from perdure.surfaces import health_checks, units
from perdure.surfaces.health_checks import count_covered_runs
from perdure.surfaces.units import format_count, format_zoned_time
from perdure.surfaces.web import visits
from perdure.surfaces.web.render import mask_name, to_key
from perdure.surfaces.web.visits import HtmlPage, Redirect, View, ViewResult, Visit
from perdure.text import shorten_project
from perdure.types import GrantScope

SCOPES = (("project", "a project"), ("tag", "a tag"), ("run", "a run"), ("agent", "an agent"))


@dataclass(frozen=True, slots=True)
class GrantEntry:
    """A grant in the list."""

    given: GrantRecord
    n_runs: int | None  # covered now; None if that is not known, or if it is over
    is_over: bool


@dataclass(frozen=True, slots=True)
class GrantForm:
    """The values of the form."""

    grantee: str = ""
    scope: str = "project"
    value: str = ""
    until: str = ""
    is_unknown: bool = False  # no user here has this name
    is_new_project: bool = False  # none of the visitor's runs is in it
    similar: Sequence[str] = ()  # projects that lists show under this name


def show_sharing(visit: Visit) -> HtmlPage:
    """Show both lists, and the form."""
    params = visit.query
    form = GrantForm(scope=params.get("scope", "project"), value=params.get("value", ""))
    visits.check_query(params)
    return _make_sharing_page(visit, form)


def _make_sharing_page(visit: Visit, form: GrantForm, error: str = "") -> HtmlPage:
    is_all, home = visit.query.get("all") == "1", visit.home
    given_entries = [
        _to_grant_entry(home, grant, visit) for grant in home.sharing.grants.list_given(include_ended=is_all)
    ]
    received = [
        GrantEntry(grant, None, not grant.is_in_force(visit.now))
        for grant in home.sharing.grants.list_received(include_ended=is_all)
    ]
    values = {
        "title": "Sharing",
        "given": given_entries,
        "received": received,
        "every": is_all,
        "wanted": form,
        "error": error,
        "scopes": SCOPES,
        "projects": _list_projects(home),
        "said": describe_grant,
    }
    return HtmlPage("sharing.html", values, 400 if error else 200)


def _to_grant_entry(home: Home, grant: GrantRecord, visit: Visit) -> GrantEntry:
    is_over = not grant.is_in_force(visit.now)
    return GrantEntry(grant, None if is_over else count_covered_runs(home, grant), is_over)


def _list_projects(home: Home) -> Sequence[str]:
    """Return the visitor's own projects: nothing else can be shared."""
    try:
        return [path for path in home.runs.projects(is_own=True) if path]
    except IndexFault:
        return []


def describe_grant(grant_state: GrantRecord) -> str:
    """Say in words what a grant covers."""
    grant = grant_state.grant
    if grant.scope == "run":
        return f"run {grant.value} and the runs below it"
    since = f" since {format_zoned_time(grant.since_at)}" if grant.since_at and grant.since_at > BEGINNING else ""
    return f"{grant.scope} {grant.value}{since}"


def give_grant(visit: Visit) -> ViewResult:
    """Let another user read what is in a scope."""
    grantee, scope, value, until = (visit.form.get(name, "").strip() for name in ("grantee", "scope", "value", "until"))
    form = GrantForm(grantee, scope, visits.resolve_key(value, lambda: _list_projects(visit.home)), until)
    try:
        if form.scope not in get_args(GrantScope):
            raise UsageError(f"{form.scope!r} cannot be shared")
        form = _find_doubts(visit, form)
        if form.is_unknown or form.is_new_project:
            return _make_sharing_page(visit, form)
        until_at = units.parse_future_moment(form.until or None, now=visit.now)
        grant_state = visit.home.sharing.share(
            form.grantee, cast(GrantScope, form.scope), form.value, until_at=until_at
        )
    except (UsageError, NotFound) as error:
        missing = f"You have no {form.scope} {mask_name(form.value)!r}."
        missing = str(error) if isinstance(error, TeamMissing) else missing
        return _make_sharing_page(visit, form, missing if isinstance(error, NotFound) else error.detail or str(error))
    n_runs = count_covered_runs(visit.home, grant_state)
    coverage = "this" if n_runs is None else format_count(n_runs, "run")
    return Redirect(
        "/sharing",
        f"{grant_state.grant.grantee} may read {describe_grant(grant_state)}: "
        f"{coverage} now, and runs that are added later.",
    )


def _find_doubts(visit: Visit, form: GrantForm) -> GrantForm:
    """Return the form with what its writer should confirm: a grant for nobody, or of a project without runs."""
    is_unknown = not is_known_user(visit, form.grantee) and visit.form.get("sure") != form.grantee
    projects = _list_projects(visit.home)
    path = form.value.rstrip("/") or form.value
    if form.scope != "project" or path in projects or visit.form.get("sure_project") == to_key(form.value):
        return replace(form, is_unknown=is_unknown)
    similar = [project for project in projects if shorten_project(project) == path]
    return replace(form, is_unknown=is_unknown, is_new_project=True, similar=similar)


def is_known_user(visit: Visit, name: str) -> bool:
    """Return True for a team, and if a user of this name has anything here, or a machine that may connect for them."""
    return (
        name.startswith(TEAM_SIGN)
        or name in visit.home.sharing.users()
        or bool(visit.home.sharing.machines.list_machines(name))
    )


def revoke_grant(visit: Visit) -> Redirect:
    """Revoke a grant."""
    grant_state = visit.home.sharing.grants.revoke(visit.path_params["grant_id"])
    return Redirect("/sharing", f"{grant_state.grant.grantee} may no longer read {describe_grant(grant_state)}.")


def decline_grant(visit: Visit) -> Redirect:
    """Decline a grant received from another user."""
    grant_state = visit.home.sharing.grants.decline(visit.path_params["grant_id"])
    return Redirect("/sharing", f"You no longer read {describe_grant(grant_state)} of {grant_state.grant.owner}.")


SHARING_VIEWS: tuple[View, ...] = (
    View("GET", "/sharing", show_sharing, nav="sharing"),
    View("POST", "/sharing", give_grant, nav="sharing", pool="write"),
    View("POST", "/sharing/{grant_id}/revoke", revoke_grant, nav="sharing", pool="write"),
    View("POST", "/sharing/{grant_id}/decline", decline_grant, nav="sharing", pool="write"),
)


_UNREACHABLE_HOSTS = ("", "0.0.0.0", "[::]", "localhost", "[::1]")  # hosts that other machines cannot connect to


@dataclass(frozen=True, slots=True)
class MachineEntry:
    """One row of the list: a registered machine, or one known only from its runs."""

    name: str
    machine: Machine | None
    brought: MachineCaptures | None = None
    is_here: bool = False  # the machine that this home is on


def show_machines(visit: Visit) -> HtmlPage:
    """Show the list, and the form for another machine."""
    return _make_machines_page(visit)


def _make_machines_page(visit: Visit, *, name: str = "", user: str = "", error: str = "") -> HtmlPage:
    flags = {key: visit.query.get(key) == "1" for key in ("all", "everybody")}
    if flags["everybody"] and not visit.identity.is_admin:
        raise NotFound("list of all machines")
    user_filter = None if flags["everybody"] else visit.home.user
    registered = visit.home.sharing.machines.list_machines(user_filter, include_revoked=flags["all"])
    rows = list_machine_entries(registered, _read_captures(visit), visit.home.user, _find_own_machine(visit))
    values = {
        "title": "Machines",
        "entries": rows,
        "wanted": flags,
        "name": name,
        "user": user,
        "error": error,
    }
    return HtmlPage("machines.html", values, 400 if error else 200)


def _read_captures(visit: Visit) -> Mapping[str, MachineCaptures]:
    try:
        return visit.home.runs.captures_by_machine()
    except IndexFault:  # registrations do not depend on the index
        return {}


def _find_own_machine(visit: Visit) -> str:
    """Return the machine that serves; the machine of the visitor's home is the one they connected from."""
    with visit.server.lend_home() as serving_home:
        return serving_home.config.machine


def list_machine_entries(
    registered: Sequence[Machine], captures: Mapping[str, MachineCaptures], user: str, own_machine: str
) -> list[MachineEntry]:
    """Return the registered machines, and behind them those known only from what they captured.

    Captures are shown for the user's own machines alone. own_machine: the machine that this home is on.
    """
    own_names = {machine.name for machine in registered if machine.user == user}
    rows = [
        MachineEntry(
            item.name,
            item,
            captures.get(item.name) if item.user == user else None,
            item.name == own_machine and item.user == user,
        )
        for item in registered
    ]
    return [
        *rows,
        *(
            MachineEntry(name, None, captures[name], name == own_machine)
            for name in sorted(captures)
            if name not in own_names
        ),
    ]


def register_machine(visit: Visit) -> ViewResult:
    """Register a machine for a user: the one page that shows its secret."""
    name, user = visit.form.get("name", "").strip(), visit.form.get("user", "").strip() or visit.home.user
    if user != visit.home.user and not visit.identity.is_admin:
        raise NotFound(user)
    try:
        machine, secret = visit.home.sharing.machines.register(user, name, registered_by=visit.identity.machine_id)
    except UsageError as error:
        return _make_machines_page(visit, name=name, user=user, error=error.detail or str(error))
    values: dict[str, Any] = {"title": f"{machine.name} is registered", "machine": machine, "secret": secret}
    return HtmlPage("machine_new.html", {**values, "joined": f"perdure join {_find_join_address(visit) or 'URL'}"}, 201)


def _find_join_address(visit: Visit) -> str:
    """Return the address at which another machine finds this home; "" if that cannot be known from here."""
    address = health_checks.make_http_address(visit.home.config.server, None)
    host, _, port = address.partition("://")[2].rpartition(":")
    return "" if host in _UNREACHABLE_HOSTS or host.startswith("127.") or port == "0" else address


def ask_revoke_machine(visit: Visit) -> HtmlPage:
    """Show what revoking a machine means, before it is done."""
    machine = _get_machine(visit)
    capture = _read_captures(visit).get(machine.name) if machine.user == visit.home.user else None
    return HtmlPage("machine_revoke.html", {"title": f"Revoke {machine.name}?", "machine": machine, "brought": capture})


def revoke_machine(visit: Visit) -> Redirect:
    """Revoke a machine."""
    machine = _get_machine(visit)
    revoked, outcome, _ = visit.home.sharing.revoke_machine(machine.machine_id, machine.user)
    rest = " Its app password is still valid at the server of its person; that is tried again." * (outcome == "waiting")
    message = f"{revoked.name} of {revoked.user} is revoked: the home refuses its next request.{rest}"
    return Redirect("/machines", message)


def _get_machine(visit: Visit) -> Machine:
    """Return the machine of the address: the visitor's own, or anybody's for an admin. Raises NotFound."""
    user = None if visit.identity.is_admin else visit.home.user
    for machine in visit.home.sharing.machines.list_machines(user, include_revoked=True):
        if machine.machine_id == visit.path_params["machine_id"]:
            return machine
    raise NotFound(visit.path_params["machine_id"])


MACHINE_VIEWS: tuple[View, ...] = (
    View("GET", "/machines", show_machines, nav="machines"),
    View("POST", "/machines", register_machine, nav="machines", pool="write"),
    View("GET", "/machines/{machine_id}/revoke", ask_revoke_machine, nav="machines"),
    View("POST", "/machines/{machine_id}/revoke", revoke_machine, nav="machines", pool="write"),
)
