"""`/sharing`: what the visitor lets others read, and what others let the visitor read; give, revoke, decline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast, get_args

from perdure.authority.grants import Given
from perdure.errors import IndexFault, NotFound, UsageError
from perdure.home import Home
from perdure.surfaces import moments
from perdure.surfaces.amounts import plural
from perdure.surfaces.covering import n_covered
from perdure.surfaces.page import addresses
from perdure.surfaces.page.render import shown
from perdure.surfaces.page.visits import Answer, Moved, Shown, View, Visit
from perdure.types import GrantScope

SCOPES = (("project", "a project"), ("tag", "a tag"), ("run", "a run"), ("agent", "an agent"))


@dataclass(frozen=True, slots=True)
class Entry:
    """A grant of the visitor's."""

    given: Given
    n_runs: int | None  # that it covers now; None where that is not known, or it is over
    is_over: bool


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the form says."""

    grantee: str = ""
    scope: str = "project"
    value: str = ""
    until: str = ""
    is_unknown: bool = False  # nobody here is called so


def sharing(visit: Visit) -> Shown:
    """Both lists, and the form."""
    asked = visit.query
    wanted = Wanted(scope=asked.get("scope", "project"), value=asked.get("value", ""))
    addresses.check(asked)
    return _listed(visit, wanted)


def _listed(visit: Visit, wanted: Wanted, error: str = "") -> Shown:
    every, home = visit.query.get("all") == "1", visit.home
    given = [_entry(home, one, visit) for one in home.grants.given(every=every)]
    received = [Entry(one, None, not one.is_in_force(visit.now)) for one in home.grants.received(every=every)]
    values = {
        "title": "Sharing", "given": given, "received": received, "every": every, "wanted": wanted, "error": error,
        "scopes": SCOPES, "projects": _projects(home), "said": said,
    }  # fmt: skip
    return Shown("sharing.html", values, 400 if error else 200)


def _entry(home: Home, given: Given, visit: Visit) -> Entry:
    is_over = not given.is_in_force(visit.now)
    return Entry(given, None if is_over else n_covered(home, given), is_over)


def _projects(home: Home) -> Sequence[str]:
    """The visitor's own projects: nothing else can be shared."""
    try:
        return [path for path in home.projects(is_own=True) if path]
    except IndexFault:
        return []


def said(given: Given) -> str:
    """What a grant is of, in words."""
    grant = given.grant
    return f"run {grant.value} and what is below it" if grant.scope == "run" else f"{grant.scope} {grant.value}"


def give(visit: Visit) -> Answer:
    """Let another user read what is in a scope."""
    grantee, scope, value, until = (visit.form.get(name, "").strip() for name in ("grantee", "scope", "value", "until"))
    wanted = Wanted(grantee, scope, addresses.named(value, lambda: _projects(visit.home)), until)
    try:
        if wanted.scope not in get_args(GrantScope):
            raise UsageError(f"{wanted.scope!r} cannot be shared")
        if not _is_known(visit, wanted.grantee) and visit.form.get("sure") != wanted.grantee:
            return _listed(visit, replace(wanted, is_unknown=True))
        until_at = moments.ahead(wanted.until or None, now=visit.now)
        given = visit.home.share(wanted.grantee, cast(GrantScope, wanted.scope), wanted.value, until_at=until_at)
    except (UsageError, NotFound) as error:
        missing = f"There is no {wanted.scope} {shown(wanted.value)!r} of yours."
        return _listed(visit, wanted, missing if isinstance(error, NotFound) else error.detail or str(error))
    n_runs = n_covered(visit.home, given)
    now = "what is there" if n_runs is None else plural(n_runs, "run")
    return Moved("/sharing", f"{given.grant.grantee} may read {said(given)}: {now} now, and what comes to it later.")


def _is_known(visit: Visit, name: str) -> bool:
    """Whether a user of this name has anything here, or a machine that may speak for them."""
    return name in visit.home.users() or bool(visit.home.machines.listed(name))


def revoke(visit: Visit) -> Moved:
    """Share it no more."""
    done = visit.home.grants.revoke(visit.path["grant_id"])
    return Moved("/sharing", f"{done.grant.grantee} may no longer read {said(done)}.")


def decline(visit: Visit) -> Moved:
    """Read no more of what another shares."""
    done = visit.home.grants.decline(visit.path["grant_id"])
    return Moved("/sharing", f"You read no more of {said(done)} of {done.grant.owner}.")


ROWS: tuple[View, ...] = (
    View("GET", "/sharing", sharing, nav="sharing"),
    View("POST", "/sharing", give, nav="sharing", desk="write"),
    View("POST", "/sharing/{grant_id}/revoke", revoke, nav="sharing", desk="write"),
    View("POST", "/sharing/{grant_id}/decline", decline, nav="sharing", desk="write"),
)
