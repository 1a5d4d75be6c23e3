"""`status` and `doctor` on a machine that keeps nothing itself: what waits here, and whether the home takes it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime

from perdure import config as settings
from perdure.capture import alert, credential, failures, outbox, privacy, remote
from perdure.capture.credential import Credential
from perdure.capture.rules import Rules
from perdure.clients import hooks, setup
from perdure.errors import ClientFault, CredentialFault, CredentialMissing, PerdureError, RemoteRefused
from perdure.resident import serve
from perdure.surfaces import afar
from perdure.surfaces.checks import LOW_DISK_BYTES, Check, resident_line
from perdure.surfaces.cli.common import Shell, ago, plural, size

# status -----------------------------------------------------------------------------------------------------------


def status(shell: Shell, rules: Rules) -> None:
    """Say where this machine's home is, and what waits for it."""
    known, why = _credential(rules)
    waiting, n_aside = outbox.backlog(rules.home / "outbox"), len(outbox.aside(rules.home / "outbox"))
    answers, said = _asked(rules)
    pause = privacy.paused(rules.home, datetime.now(UTC))
    resident = serve.state(rules.home)
    if shell.as_json:
        shell.answer({
            "home": str(rules.home), "remote": rules.remote.url, "user": known.user_id if known else None,
            "machine": known.machine if known else None, "answers": answers, "said": said,
            "outbox": {"files": waiting.n_files, "bytes": waiting.n_bytes, "oldest_at": waiting.oldest_at,
                       "set_aside": n_aside, "last_try": remote.why_away(rules.home) if waiting.n_files else ""},
            "failing": failures.lasting(rules.home), "resident": resident, "paused": pause is not None,
        }, next_actions=[("perdure doctor", "check that everything works")])  # fmt: skip
        return
    last = _last_try(rules, waiting)
    age = f", the oldest {ago(waiting.oldest_at, datetime.now(UTC))}" if waiting.oldest_at else ""
    rows = [
        ("home", f"{rules.remote.url} ({said})"),
        ("here", f"{rules.home} ({known.user_id} @{known.machine})" if known else f"{rules.home}: {why}"),
        ("outbox", f"{plural(waiting.n_files, 'capture')} waiting, {size(waiting.n_bytes)}{age}{last}"),
        ("set aside", f"{plural(n_aside, 'capture')}: `perdure push --retry` asks again" if n_aside else ""),
        ("resident", resident_line(resident) if resident else "none: each hook sends for itself"),
        ("paused", "`perdure resume` ends that" if pause else ""),
    ]
    for name, value in rows:
        if value:
            shell.out.print(f"{name:>8}  {value}", markup=False)


def _credential(rules: Rules) -> tuple[Credential | None, str]:
    """(the credential of this machine, what is wrong with it)."""
    try:
        known = credential.read(rules.home)
    except CredentialFault as fault:
        return None, str(fault)
    return known, "" if known else "no credential: `perdure join` gets one"


def _asked(rules: Rules) -> tuple[bool, str]:
    """(whether the home answers and knows this machine, in words)."""
    try:
        with afar.opened(rules) as there:
            said = there.me()
    except PerdureError as error:
        return False, str(error)
    return True, f"it answers, and knows this machine as {said.get('user')} @{said.get('machine')}"


# doctor -----------------------------------------------------------------------------------------------------------


def checks(rules: Rules) -> Iterator[Check]:
    """Everything that capture and recall depend on, on this machine and up to the home."""
    free = shutil.disk_usage(rules.home).free
    low = free < LOW_DISK_BYTES
    yield Check("disk", "problem" if low else "ok", f"{size(free)} free", "free some space" if low else "")
    found = list(_home(rules))
    yield from found
    yield from _outbox(rules)
    yield from _set_ups(rules)
    yield from _failures(rules, answers=all(check.grade == "ok" for check in found))
    if privacy.paused(rules.home, datetime.now(UTC)):
        yield Check("capture", "notice", "paused", "`perdure resume` ends that")


def _home(rules: Rules) -> Iterator[Check]:
    try:
        remote.address(rules.remote)
        with afar.opened(rules) as there:
            said = there.me()
    except RemoteRefused as error:
        again = f"`perdure machine register` at the home, then `perdure join {rules.remote.url} --replace` here"
        is_missing = isinstance(error, CredentialMissing)
        found = "this machine has no credential" if is_missing else "this machine's credential is not accepted any more"
        yield Check("home", "problem", f"{found} ({error.detail})", again)
    except PerdureError as error:
        yield Check("home", "problem", str(error), "what is captured waits in the outbox meanwhile; nothing is lost")
    else:
        yield Check("home", "ok", f"{rules.remote.url} knows this machine as {said.get('user')} @{said.get('machine')}")


def _failures(rules: Rules, *, answers: bool) -> Iterator[Check]:
    """What hooks failed at and have not done since; a recall that a home now there did not answer is no problem."""
    lasting = failures.lasting(rules.home)
    if answers and lasting == ["recall"] and failures.is_remote(rules.home, "recall"):
        yield Check("hooks", "notice", "recall failed while the home was away", "it is there again; nothing to do")
    elif lasting:
        where = rules.home / "run" / "hook-failures.jsonl"
        said = f"still failing: {', '.join(lasting)}"
        yield Check("hooks", "problem", said, f"see {where}; nothing captured is lost")


def _outbox(rules: Rules) -> Iterator[Check]:
    problem = outbox.problem(
        rules.home / "outbox", max_bytes=rules.alarm_bytes, max_age_s=rules.alarm_age_s, now=datetime.now(UTC)
    )
    waiting = outbox.backlog(rules.home / "outbox")
    why = _last_try(rules, waiting)
    held = f"{plural(waiting.n_files, 'capture')} waiting"
    said = problem or "; ".join(alert.current(rules.home)) or (held if why else "")
    if said:
        yield Check("outbox", "problem", said + why, "`perdure push` sends it, or says why not")
    else:
        yield Check("outbox", "ok", held)
    aside = outbox.aside(rules.home / "outbox")
    if aside:
        again = f"`perdure push --retry`, or look at {aside[0]}"
        yield Check("outbox", "problem", f"{plural(len(aside), 'capture')} the home cannot take", again)


def _last_try(rules: Rules, waiting: outbox.Backlog) -> str:
    """What the home last said to what waits, to be put behind it; "" where nothing waits, or it took something."""
    why = remote.why_away(rules.home) if waiting.n_files else ""
    return f"; the last try ended with: {why}" if why else ""


def _set_ups(rules: Rules) -> Iterator[Check]:
    """Which clients capture to this home."""
    n_ours = 0
    for client in setup.CLIENTS:
        path = setup.settings_path(client, settings.user_home(), settings.environment)
        try:
            commands = setup.commands(client, path)
            ours = bool(commands) and hooks.home_of(next(iter(commands.values()))) == str(rules.home)
        except ClientFault as fault:
            yield Check(f"{client} hooks", "problem", fault.detail, f"`perdure install {client} --dry-run` shows more")
            continue
        n_ours += ours
        if ours:
            yield Check(f"{client} hooks", "ok", f"in {path}")
    if not n_ours:
        yield Check("hooks", "notice", "no client is set up", "`perdure install CLIENT` does that")
