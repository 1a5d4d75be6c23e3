"""`status` and `doctor` on a thin machine: what waits here, and whether the home takes it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime

from perdure import config as settings
from perdure.capture import alert, credential, enqueue, failures, policy, remote
from perdure.capture.credential import Credential
from perdure.capture.policy import CaptureRules
from perdure.clients import entries, setup
from perdure.errors import ClientFault, CredentialFault, CredentialMissing, PerdureError, RemoteRefused
from perdure.remote_home import open_remote_home
from perdure.service.client import ask_health
from perdure.surfaces.cli.common import Shell, format_age, format_count, format_size
from perdure.surfaces.health_checks import LOW_DISK_BYTES, HealthCheck, describe_resident

# status -----------------------------------------------------------------------------------------------------------


def print_thin_status(shell: Shell, rules: CaptureRules) -> None:
    """Print where the home of this machine is, and what waits for it."""
    own_credential, problem = _read_credential(rules)
    waiting, n_aside = (
        enqueue.measure_backlog(rules.home / "outbox"),
        len(enqueue.list_set_aside(rules.home / "outbox")),
    )
    answers, message = _ask_home(rules)
    pause = policy.read_pause(rules.home, datetime.now(UTC))
    resident = ask_health(rules.home)
    if shell.as_json:
        shell.print_json(
            {
                "home": str(rules.home),
                "remote": rules.remote.url,
                "user": own_credential.user_id if own_credential else None,
                "machine": own_credential.machine if own_credential else None,
                "answers": answers,
                "said": message,
                "outbox": {
                    "files": waiting.n_files,
                    "bytes": waiting.n_bytes,
                    "oldest_at": waiting.oldest_at,
                    "set_aside": n_aside,
                    "last_try": remote.read_away_reason(rules.home) if waiting.n_files else "",
                },
                "failing": failures.list_open_incidents(rules.home),
                "resident": resident,
                "paused": pause is not None,
            },
            next_actions=[("perdure doctor", "check that everything works")],
        )
        return
    last_try = _format_last_try(rules, waiting)
    age = f", the oldest {format_age(waiting.oldest_at, datetime.now(UTC))}" if waiting.oldest_at else ""
    rows = [
        ("home", f"{rules.remote.url} ({message})"),
        (
            "here",
            f"{rules.home} ({own_credential.user_id} @{own_credential.machine})"
            if own_credential
            else f"{rules.home}: {problem}",
        ),
        (
            "outbox",
            f"{format_count(waiting.n_files, 'capture')} waiting, {format_size(waiting.n_bytes)}{age}{last_try}",
        ),
        (
            "set aside",
            f"{format_count(n_aside, 'capture')}: `perdure push --retry` sends them again" if n_aside else "",
        ),
        ("resident", describe_resident(resident) if resident else "none: each hook sends for itself"),
        ("paused", "`perdure resume` ends the pause" if pause else ""),
    ]
    for name, value in rows:
        if value:
            shell.out.print(f"{name:>8}  {value}", markup=False)


def _read_credential(rules: CaptureRules) -> tuple[Credential | None, str]:
    """Return (the credential of this machine or None, what is wrong with it)."""
    try:
        own_credential = credential.read_credential(rules.home)
    except CredentialFault as fault:
        return None, str(fault)
    return own_credential, "" if own_credential else "no credential: run `perdure join`"


def _ask_home(rules: CaptureRules) -> tuple[bool, str]:
    """Return (True if the home answers and knows this machine, the same in words)."""
    try:
        with open_remote_home(rules) as remote_home:
            identity = remote_home.read_identity()
    except PerdureError as error:
        return False, str(error)
    return True, f"it answers and identifies this machine as {identity.get('user')} @{identity.get('machine')}"


# doctor -----------------------------------------------------------------------------------------------------------


def check_thin_machine(rules: CaptureRules) -> Iterator[HealthCheck]:
    """Check everything that capture and recall depend on, from this machine up to the home."""
    n_free_bytes = shutil.disk_usage(rules.home).free
    is_low = n_free_bytes < LOW_DISK_BYTES
    yield HealthCheck(
        "disk", "problem" if is_low else "ok", f"{format_size(n_free_bytes)} free", "free some space" if is_low else ""
    )
    home_checks = list(_check_home(rules))
    yield from home_checks
    yield from _check_outbox(rules)
    yield from _check_client_hooks(rules)
    yield from _check_hook_failures(rules, answers=all(check.grade == "ok" for check in home_checks))
    if policy.read_pause(rules.home, datetime.now(UTC)):
        yield HealthCheck("capture", "notice", "paused", "`perdure resume` ends the pause")


def _check_home(rules: CaptureRules) -> Iterator[HealthCheck]:
    try:
        remote.parse_address(rules.remote)
        with open_remote_home(rules) as remote_home:
            identity = remote_home.read_identity()
    except RemoteRefused as error:
        advice = f"`perdure machine register` at the home, then `perdure join {rules.remote.url} --replace` here"
        is_missing = isinstance(error, CredentialMissing)
        problem = (
            "this machine has no credential"
            if is_missing
            else "the home no longer accepts the credential of this machine"
        )
        yield HealthCheck("home", "problem", f"{problem} ({error.detail})", advice)
    except PerdureError as error:
        yield HealthCheck("home", "problem", str(error), "captures wait in the outbox until then; nothing is lost")
    else:
        yield HealthCheck(
            "home",
            "ok",
            f"{rules.remote.url} identifies this machine as {identity.get('user')} @{identity.get('machine')}",
        )


def _check_hook_failures(rules: CaptureRules, *, answers: bool) -> Iterator[HealthCheck]:
    """Check the failures of hooks that have not succeeded since.

    A failed recall is only a notice if the home answers again and was the cause.
    """
    lasting = failures.list_open_incidents(rules.home)
    if answers and lasting == ["recall"] and failures.is_remote_failure(rules.home, "recall"):
        yield HealthCheck(
            "hooks", "notice", "recall failed while the home did not answer", "the home answers again; nothing to do"
        )
    elif lasting:
        failures_path = rules.home / "run" / "hook-failures.jsonl"
        message = f"still failing: {', '.join(lasting)}"
        yield HealthCheck("hooks", "problem", message, f"see {failures_path}; nothing captured is lost")


def _check_outbox(rules: CaptureRules) -> Iterator[HealthCheck]:
    problem = enqueue.describe_problem(
        rules.home / "outbox", max_bytes=rules.alarm_bytes, max_age_s=rules.alarm_age_s, now=datetime.now(UTC)
    )
    waiting = enqueue.measure_backlog(rules.home / "outbox")
    last_try = _format_last_try(rules, waiting)
    waiting_text = f"{format_count(waiting.n_files, 'capture')} waiting"
    message = problem or "; ".join(alert.read_problems(rules.home)) or (waiting_text if last_try else "")
    if message:
        yield HealthCheck("outbox", "problem", message + last_try, "`perdure push` sends them, or shows the reason")
    else:
        yield HealthCheck("outbox", "ok", waiting_text)
    refused_paths = enqueue.list_set_aside(rules.home / "outbox")
    if refused_paths:
        advice = f"`perdure push --retry`, or look at {refused_paths[0]}"
        yield HealthCheck(
            "outbox", "problem", f"{format_count(len(refused_paths), 'capture')} refused by the home", advice
        )


def _format_last_try(rules: CaptureRules, waiting: enqueue.OutboxBacklog) -> str:
    """Format the last answer of the home, to append to a message; "" if nothing waits, or the home took something."""
    why = remote.read_away_reason(rules.home) if waiting.n_files else ""
    return f"; the last try ended with: {why}" if why else ""


def _check_client_hooks(rules: CaptureRules) -> Iterator[HealthCheck]:
    """Check which clients capture to this home."""
    n_ours = 0
    for client in setup.CLIENTS:
        path = setup.find_client_settings(client, settings.find_user_home(), settings.read_variable)
        try:
            commands = setup.read_commands(client, path)
            is_ours = bool(commands) and entries.get_home(next(iter(commands.values()))) == str(rules.home)
        except ClientFault as fault:
            yield HealthCheck(
                f"{client} hooks", "problem", fault.detail, f"`perdure install {client} --dry-run` shows more"
            )
            continue
        n_ours += is_ours
        if is_ours:
            yield HealthCheck(f"{client} hooks", "ok", f"in {path}")
    if not n_ours:
        yield HealthCheck("hooks", "notice", "no client is set up", "run `perdure install CLIENT`")
