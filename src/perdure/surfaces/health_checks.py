"""The checks of `doctor` and `status` that the command line and the web pages share, for local and remote homes.

A check looks and describes: it changes nothing, and one that fails becomes a finding and not an
exception. A finding names the problem and the advice. Light checks work on a home opened for reading
only. Checks of installed clients and of models are in `cli/maintenance.py`.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from perdure import agent_queue, log, turn
from perdure.capture import enqueue, events, failures, session_file
from perdure.config import ServerConfig
from perdure.delivery.queue import DeliveryQueue
from perdure.delivery.targets import check_target
from perdure.environ import local_now
from perdure.errors import Busy, ConfigFault, IndexFault, NotFound, PerdureError
from perdure.home import Home
from perdure.index import catchup
from perdure.pictures.reader import INSTALL, find_engine_tag
from perdure.remote_home import RemoteHome
from perdure.report import answers, probe_runs
from perdure.service import health
from perdure.service.worker_list import list_workers
from perdure.sharing.grants import GrantRecord
from perdure.sqlite import apsw
from perdure.surfaces.units import format_count, format_size, format_time
from perdure.text import format_age

if TYPE_CHECKING:
    from perdure.surfaces.mail.inbox import UnreadMail

# describing a home --------------------------------------------------------------------------------------------

LOW_DISK_BYTES = 500_000_000
NO_INDEX_YET = "none yet; the first import creates it"
MAX_FAILED_SHARE = 0.05  # of a proxy's requests, without the block that they should have
Grade = Literal["ok", "notice", "problem"]


@dataclass(frozen=True)
class HealthCheck:
    """The result of one check."""

    name: str
    grade: Grade
    found: str
    advice: str = ""


def describe_resident(state: dict[str, Any] | None) -> str:
    """Describe the resident home on one line, from the state that it reports."""
    if state is None:
        return "none: `perdure serve`"
    if state["problems"]:
        return f"process {state['pid']}, with problems: {'; '.join(state['problems'])}"
    lanes = ", ".join(f"{lane} {n:,}" for lane, n in state.get("embedding", {}).items() if n)
    queue_text = f", embedding {lanes}" if lanes else ""
    since = format_time(datetime.fromisoformat(state["since_at"]))
    return f"process {state['pid']} since {since}, {format_size(state['rss_bytes'])} of memory{queue_text}"


def make_http_address(server: ServerConfig, state: dict[str, Any] | None) -> str:
    """Return the HTTP address that a running home reports, else the configured one; empty if it serves none."""
    address_text = str((state or {}).get("http") or server.http)
    return (
        address_text
        if not address_text or "://" in address_text
        else f"{'https' if server.tls_certificate else 'http'}://{address_text}"
    )


def describe_proxy(report: Mapping[str, Any]) -> str:
    """Describe a proxy on one line, from its last report."""
    parts = [format_count(report["n_requests"], "request"), f"{report['n_edited']:,} edited"]
    if report["n_failed_open"]:
        slow = f" ({report['n_slow']:,} because recall was slow)" if report["n_slow"] else ""
        parts.append(f"{report['n_failed_open']:,} without the block they should have{slow}")
    since = format_time(datetime.fromisoformat(report["since_at"]))
    return f"{report['address']}, process {report['pid']} since {since}: {', '.join(parts)}"


# running checks -----------------------------------------------------------------------------------------------

_DISK_PARTS = {
    "runs": "archive/runs",
    "packs": "archive/packs",
    "journal": "archive/journal",
    "index": "index-*.db*",
    "vectors": "vectors",
    "cache": "cache",
    "tiers": "tiers",
}


def run_check(examine: Callable[[Home], Iterator[HealthCheck]], home: Home) -> list[HealthCheck]:
    """Run one check; an exception becomes a failed check."""
    try:
        return list(examine(home))
    except (PerdureError, OSError, apsw.Error) as error:
        return [
            HealthCheck(
                examine.__name__.strip("_").removeprefix("check_").replace("_", " "),
                "problem",
                str(error),
                "see `perdure verify`",
            )
        ]


def measure_disk_use(home: Path) -> dict[str, int]:
    """Return the bytes on disk of each part of a home. It looks at every file, so the time grows with their
    number.
    """
    return {name: _count_bytes(home, pattern) for name, pattern in _DISK_PARTS.items()}


def _count_bytes(home: Path, pattern: str) -> int:
    """Count the bytes on disk of a folder, or of the files that match."""
    top_paths = list(home.glob(pattern))
    paths = [path for top_path in top_paths for path in (top_path.rglob("*") if top_path.is_dir() else [top_path])]
    return sum(path.stat().st_blocks * 512 for path in paths if path.is_file())


# checks -------------------------------------------------------------------------------------------------------


def check_home(home: Home) -> Iterator[HealthCheck]:
    """Check that the home can be written, and that its disk has room."""
    if home.writable:
        yield HealthCheck("home", "ok", str(home.path))
    else:
        advice = "reading works, and nothing is captured: check its permissions and mounts"
        yield HealthCheck("home", "problem", f"{home.path} cannot be written", advice)
    yield from check_disk(home)


def check_disk(home: Home) -> Iterator[HealthCheck]:
    """Check how much of the disk is free."""
    n_free = shutil.disk_usage(home.path).free
    is_low = n_free < LOW_DISK_BYTES
    yield HealthCheck(
        "disk", "problem" if is_low else "ok", f"{format_size(n_free)} free", "free some space" if is_low else ""
    )


def check_index(home: Home) -> Iterator[HealthCheck]:
    """Check how far the index is behind the archive."""
    if not home.connections.has_index() and home.archive.ledger.get_last_change() == 0:
        yield HealthCheck("index", "ok", NO_INDEX_YET)
        return
    n_behind = catchup.count_unprojected(home.index(), home.archive)
    state = f"{format_count(n_behind, 'run')} behind" if n_behind else "up to date"
    yield HealthCheck(
        "index", "notice" if n_behind else "ok", state, "the next `perdure search` updates it" if n_behind else ""
    )


def check_outbox(home: Home) -> Iterator[HealthCheck]:
    """Check for captures that are not archived yet."""
    backlog, limits = enqueue.measure_backlog(home.path / "outbox"), home.config.capture
    age_s = (datetime.now(UTC) - backlog.oldest_at).total_seconds() if backlog.oldest_at else 0
    is_stuck = backlog.n_bytes > limits.outbox_alarm_bytes or age_s > limits.outbox_alarm_age_s
    grade: Grade = "ok"
    advice = ""
    if is_stuck:
        grade, advice = "problem", "`perdure import` moves them into the archive; if they stay, check the disk"
    elif backlog.n_files:
        grade, advice = "notice", "the next message or `perdure search` reads them; `perdure serve` does so at once"
    yield HealthCheck("outbox", grade, f"{format_count(backlog.n_files, 'capture')} waiting", advice)
    unreadable_files = list((home.path / "outbox").glob("*.unreadable"))
    if unreadable_files:
        yield HealthCheck(
            "outbox",
            "problem",
            f"{format_count(len(unreadable_files), 'capture')} cannot be read",
            f"see {unreadable_files[0]}",
        )


def check_store(home: Home) -> Iterator[HealthCheck]:
    """Check the store of the archive, if it has one, as it was found when it was last used."""
    if (status := home.upkeep.store_status()) is None:
        return
    if status.n_damaged:
        found = f"{status.address}: {format_count(status.n_damaged, 'object')} damaged"
        yield HealthCheck(
            "store", "problem", found, "`perdure store` puts them there again; `perdure verify` names them"
        )
    elif status.warning:
        yield HealthCheck("store", "problem", status.warning)
    else:
        yield HealthCheck("store", "ok", f"{status.address}: {format_count(status.n_objects, 'object')}")


def check_sessions(home: Home) -> Iterator[HealthCheck]:
    """Check for sessions of Perdure's own whose last entries are not archived yet, and for what was set aside."""
    sessions = session_file.measure_open(home.path)
    if sessions.n_left:
        state = f"{format_count(sessions.n_left, 'session')} with entries of a process that was killed"
        yield HealthCheck("sessions", "notice", state, "`perdure search` or the next chat moves them into the archive")
    if sessions.aside_paths:
        state = f"{format_count(len(sessions.aside_paths), 'torn line')} set aside: no process had told anybody of it"
        yield HealthCheck("sessions", "notice", state, f"look at {sessions.aside_paths[0]}, and delete it")
    if not sessions.n_left and not sessions.aside_paths:
        state = f"{format_count(sessions.n_held, 'session')} held by a process" if sessions.n_held else "none is open"
        yield HealthCheck("sessions", "ok", state)


def check_agents(home: Home) -> Iterator[HealthCheck]:
    """Check for runs of agents that were lost or crashed in the last day; yields nothing where no agent ran."""
    counts = agent_queue.count_runs(home.path, now=datetime.now(UTC))
    if not any(counts.values()):
        return
    message = ", ".join(f"{n} {name}" for name, n in counts.items() if n)
    has_failed = bool(counts["lost"] or counts["crashed"])
    advice = "`perdure agents` lists them and says what to do" if has_failed else ""
    yield HealthCheck("agents", "notice" if has_failed else "ok", message, advice)


def check_jobs(home: Home) -> Iterator[HealthCheck]:
    """Check for jobs of the owner that do not run as they should; yields nothing where there is none."""
    from perdure.service import job_list  # the client has no code of the agent

    advice = "`perdure jobs` lists them; `perdure jobs edit NAME` corrects one, `perdure serve` runs them"
    for problem in job_list.list_problems(home, local_now()):
        yield HealthCheck("jobs", "problem", problem, advice)


def check_resident_home(home: Home, state: Mapping[str, Any] | None) -> Iterator[HealthCheck]:
    """Check the state that the resident home reports."""
    if state is None and events.has_resident_died(home.path):
        advice = "`perdure serve --detach` starts it again; `perdure serve --stop` if you want none"
        yield HealthCheck("resident home", "problem", "the last one was killed or crashed, and none is running", advice)
    elif state is None:
        advice = "`perdure serve` answers hooks faster, and runs the jobs; `perdure service install` starts it at login"
        yield HealthCheck("resident home", "notice", "none is running", advice)
    elif state["problems"]:
        advice = f"see {log.to_log_path(home.path)}; run `perdure serve --stop` and start it again"
        yield HealthCheck("resident home", "problem", "; ".join(state["problems"]), advice)
    else:
        ages = ", ".join(f"{part} {age_s:.0f} s ago" for part, age_s in state["proven_s_ago"].items())
        yield HealthCheck("resident home", "ok", f"process {state['pid']} works ({ages})")
    if n_deaths := health.count_deaths(home.path, since_at=datetime.now(UTC) - timedelta(days=1)):
        how_often = "once" if n_deaths == 1 else f"{n_deaths} times"
        message = f"killed or crashed {how_often} in the last day, and started again"
        yield HealthCheck("resident home", "notice", message, f"see {log.to_log_path(home.path)}")


def describe_workers(rows: Sequence[Mapping[str, Any]] | None) -> list[str]:
    """Describe each worker process on one line. rows: as `perdure status --json` has them; None without workers."""
    if rows is None:
        return []
    lines = []
    for row in rows:
        words = ", ".join(row["doing"].values()) or row["problem"] or "waits"
        lines.append(f"{row['name']}: {words}; {row['n_done']:,} items done, {row['n_failed']:,} of them failed")
    return lines or ["none: `perdure worker`"]


def check_workers(home: Home) -> Iterator[HealthCheck]:
    """Check that worker processes live and can reach their queue; yields nothing where the settings want none."""
    if not home.config.workers.enabled:
        return
    workers = list_workers(home.path)
    faults = [f"{worker.name}: {worker.problem}" for worker in workers if worker.problem]
    if not workers:
        yield HealthCheck("workers", "problem", "none is running, so nothing is indexed", "run `perdure worker`")
    elif faults:
        yield HealthCheck("workers", "problem", "; ".join(faults), "see docs/operating.md")
    else:
        yield HealthCheck("workers", "ok", f"{len(workers)} work: {', '.join(worker.name for worker in workers)}")


def check_proxies(home: Home, state: Mapping[str, Any] | None) -> Iterator[HealthCheck]:
    """Check the proxies that report to the resident home; yields nothing if none should run."""
    reports = (state or {}).get("proxies", [])
    for report in reports:
        is_failing = report["n_failed_open"] > MAX_FAILED_SHARE * report["n_requests"]
        advice = f"see {log.to_log_path(home.path)}; `proxy.limit_ms` is the time that a request waits"
        yield HealthCheck(
            "proxy", "notice" if is_failing else "ok", describe_proxy(report), advice if is_failing else ""
        )
    if home.config.proxy.listen and not reports:
        yield HealthCheck("proxy", "notice", f"{home.config.proxy.listen}: it does not run", "run `perdure serve`")


def check_recall(home: Home) -> Iterator[HealthCheck]:
    """Check the recall beside messages, from the log of the last day."""
    since_at = datetime.now(UTC) - timedelta(days=1)
    summary = answers.summarise_answers(log.read_entries(home.path, entry_type="answered", since_at=since_at))
    failure_codes = [
        str(entry.get("code")) for entry in log.read_entries(home.path, entry_type="failed", since_at=since_at)
    ]
    current_failure = turn.read_failure(home.path)
    message = ", ".join(f"{n} {outcome}" for outcome, n in summary["outcomes"].items()) or "none in the last day"
    if summary["p95_ms"] is not None:
        message += f"; half within {summary['p50_ms']:.0f} ms, 95 % within {summary['p95_ms']:.0f} ms"
    if current_failure or failure_codes:
        reason = (
            f"; {format_count(len(failure_codes), 'failure')}, the last: "
            f"{failure_codes[-1] if failure_codes else current_failure}"
        )
        yield HealthCheck(
            "recall", "problem" if current_failure else "notice", message + reason, f"see {log.to_log_path(home.path)}"
        )
    else:
        yield HealthCheck("recall", "ok", message)


def check_probes(home: Home) -> Iterator[HealthCheck]:
    """Check whether recall still answers the questions of the home's own history; nothing if none was asked yet."""
    counts = measure_probes(home)
    if counts is not None:
        grade: Grade = "notice" if counts["warning"] else "ok"
        advice = "`perdure report` names those that were lost" if counts["warning"] else ""
        yield HealthCheck("questions", grade, describe_probes(counts), advice)


def check_captures(home: Home) -> Iterator[HealthCheck]:
    """Check when something was last captured."""
    newest_s = home.archive.ledger.get_last_capture_s()
    if not newest_s:
        yield HealthCheck("captures", "notice", "nothing has been captured yet", "run `perdure import`")
        return
    captured_at = datetime.fromtimestamp(newest_s, UTC)
    yield HealthCheck("captures", "ok", f"the last {format_age(captured_at, datetime.now(UTC))}")


def check_mining(home: Home) -> Iterator[HealthCheck]:
    """Check for messages that mining failed on permanently; yields nothing if no model is set for mining."""
    if not home.config.models.roles.miner.provider:
        return
    from perdure.memories.mine import MAX_TRIES, BatchFailures

    n_stuck = BatchFailures(home.path).count_stuck(MAX_TRIES)
    message = (
        f"{format_count(n_stuck, 'group')} of ten messages failed {MAX_TRIES} times"
        if n_stuck
        else "no permanent failures"
    )
    yield HealthCheck(
        "mining", "notice" if n_stuck else "ok", message, "`perdure mine --again` tries again" if n_stuck else ""
    )


def check_app_passwords(home: Home) -> Iterator[HealthCheck]:
    """Check for app passwords of revoked machines that are still valid at the server of their person."""
    if home.sharing.has_app_passwords() and (waiting := home.sharing.app_passwords.list_waiting()):
        verb = "is" if len(waiting) == 1 else "are"
        found = f"{format_count(len(waiting), 'app password')} {verb} still valid, of machines that are revoked here"
        yield HealthCheck("identities", "notice", found, "`perdure user check` revokes them at the server")


def check_deliveries(home: Home) -> Iterator[HealthCheck]:
    """Check for dead letters and for targets that make no sense; yields nothing if the home delivers nothing."""
    queue, targets = DeliveryQueue(home.path, home.config.delivery), home.config.delivery
    for name in sorted(targets):
        try:
            check_target(home.path, name, targets[name])
        except ConfigFault as error:
            yield HealthCheck("deliveries", "problem", error.detail, "correct it in config.toml: docs/delivery.md")
    deliveries = queue.list_deliveries()
    if not targets and not deliveries:
        return
    dead = [delivery for delivery in deliveries if delivery.state == "dead"]
    failing = [delivery for delivery in deliveries if delivery.state == "waiting" and delivery.error]
    n_unreadable = queue.count_unreadable()
    if dead:
        last = f"the last to {dead[-1].target}: {dead[-1].error}"
        state = f"{format_count(len(dead), 'message')} could not be delivered, {last}"
        advice = "`perdure deliveries` lists them; repair the target, then `perdure deliveries retry --all`"
        yield HealthCheck("deliveries", "problem", state, advice)
    if n_unreadable:
        state = f"{format_count(n_unreadable, 'record')} cannot be read"
        yield HealthCheck("deliveries", "problem", state, f"look at {home.path / 'deliveries'}")
    if failing:
        last = f"the last by {failing[-1].target}: {failing[-1].error}"
        state = f"{format_count(len(failing), 'message')} not taken yet, {last}"
        yield HealthCheck("deliveries", "notice", state, "`perdure deliveries` says when they are tried again")
    if not dead and not failing and not n_unreadable:
        n_waiting = sum(1 for delivery in deliveries if delivery.state == "waiting")
        state = f"{format_count(len(targets), 'target')}, {format_count(n_waiting, 'message')} waiting"
        yield HealthCheck("deliveries", "ok", state)


def check_telegram(home: Home) -> Iterator[HealthCheck]:
    """Check the bot of Telegram; yields nothing if the home has none."""
    if not home.config.telegram.token_env:
        return
    from perdure.surfaces.telegram.inbox import Inbox
    from perdure.surfaces.telegram.report import read_report

    report, state = read_report(home.path), Inbox(home.path).state
    strangers = f", {format_count(state.n_ignored, 'message')} of strangers ignored" if state.n_ignored else ""
    if report is None:
        yield HealthCheck(
            "telegram", "notice", "the bot has not run yet", "`perdure serve` or `perdure telegram` runs it"
        )
    elif report.problem:
        yield HealthCheck("telegram", "problem", report.problem, "`perdure telegram --check` asks again")
    else:
        age = format_age(report.at, datetime.now(UTC))
        yield HealthCheck("telegram", "ok", f"@{report.name} was asked for messages {age}{strangers}")


def check_mail(home: Home) -> Iterator[HealthCheck]:
    """Check the mail of the agent; yields nothing if the home has none."""
    if not home.config.mail.address:
        return
    from perdure.surfaces.mail.inbox import MailInbox
    from perdure.surfaces.mail.report import read_report

    report, inbox = read_report(home.path), MailInbox(home.path)
    failed = [item for item in inbox.list_items() if item.state in ("unsure", "refused")]
    if failed:
        state = f"{format_count(len(failed), 'answer')} not sent for certain, the last to {failed[-1].address}"
        yield HealthCheck("mail", "problem", state, "`perdure mail --check` lists them; --resend sends one again")
    yield from _check_unread(list(inbox.state.unread.values()))
    if report is None:
        yield HealthCheck("mail", "notice", "no mail was looked for yet", "`perdure serve` or `perdure mail` does it")
    elif report.problem:
        yield HealthCheck("mail", "problem", report.problem, "`perdure mail --check` connects again")
    elif not failed:
        n_ignored = sum(inbox.state.ignored.values())
        ignored = f", {format_count(n_ignored, 'mail')} without an answer" if n_ignored else ""
        age = format_age(report.at, datetime.now(UTC))
        yield HealthCheck("mail", "ok", f"{home.config.mail.address} looked for mail {age}{ignored}")


def _check_unread(mails: Sequence[UnreadMail]) -> Iterator[HealthCheck]:
    if not mails:
        return
    state = f"{format_count(len(mails), 'mail')} could not be read: {mails[-1].error}"
    if any(mail.is_given_up for mail in mails):
        advice = "`perdure mail --check` lists them; one that you move out of the folder and back is tried anew"
        yield HealthCheck("mail", "problem", state, advice)
    else:
        yield HealthCheck("mail", "notice", state, "it is tried again for about four days, and the others are answered")


def check_hook_failures(home: Home) -> Iterator[HealthCheck]:
    """Check the failures that hooks noted."""
    since = (datetime.now(UTC) - timedelta(days=1)).isoformat()
    recent_failures = [item for item in failures.read_failures(home.path) if str(item.get("at")) >= since]
    open_incidents = failures.list_open_incidents(home.path)
    if not recent_failures and not open_incidents:
        return
    kinds = Counter(f"{item.get('stage')}: {item.get('error')}" for item in recent_failures)
    message = ", ".join(f"{n} times {kind}" for kind, n in kinds.most_common(3)) or "none in the last day"
    open_text = f"; still failing: {', '.join(open_incidents)}" if open_incidents else "; none since"
    advice = f"see {home.path / 'run' / 'hook-failures.jsonl'}; nothing is lost: the next event captures the rest"
    yield HealthCheck("hook failures", "problem" if open_incidents else "notice", message + open_text, advice)


# all light checks ---------------------------------------------------------------------------------------------

_LIGHT_CHECKS = (
    check_disk,
    check_index,
    check_outbox,
    check_sessions,
    check_agents,
    check_recall,
    check_probes,
    check_captures,
    check_mining,
    check_jobs,
    check_deliveries,
    check_app_passwords,
    check_telegram,
    check_mail,
    check_hook_failures,
)


def run_light_checks(home: Home) -> list[HealthCheck]:
    """Run the checks that work on a home opened for reading only, except the check of the resident home."""
    return [check for examine in _LIGHT_CHECKS for check in run_check(examine, home)]


def count_covered_runs(home: Home | RemoteHome, grant_record: GrantRecord) -> int | None:
    """Count the runs that a grant covers now: 0 if its run was erased, None if there is no index to ask."""
    try:
        return home.sharing.count_granted_runs(grant_record.grant)
    except NotFound:
        return 0
    except IndexFault:
        return None


# pictures -----------------------------------------------------------------------------------------------------


def measure_pictures(home: Home) -> dict[str, Any]:
    """Count the pictures of the home's user, and name the engine that reads them ("" for none)."""
    try:
        counts = tuple(home.upkeep.count_pictures())
    except (IndexFault, Busy):
        counts = (0, 0, 0)
    names = dict(zip(("read", "unread", "faulty"), counts, strict=True))
    return {**names, "engine": find_engine_tag(), "is_on": home.config.pictures.read}


def describe_pictures(counts: dict[str, Any]) -> str:
    """Say how many pictures are read, and how to read the others; "" for a home without pictures."""
    if not counts["read"] and not counts["unread"]:
        return ""
    faulty = f" ({counts['faulty']:,} could not be)" if counts["faulty"] else ""
    if not counts["unread"]:
        return f"{format_count(counts['read'], 'picture')} read{faulty}"
    advice = "`perdure pictures` reads them now" if counts["engine"] else f"{INSTALL} reads them"
    if not counts["is_on"]:
        advice = "switched off (pictures.read in config.toml)"
    unread = f"{format_count(counts['unread'], 'picture')} not read: {advice}"
    return f"{counts['read']:,} read{faulty}; {unread}" if counts["read"] else unread


# questions of one's own history -------------------------------------------------------------------------------


def measure_probes(home: Home) -> dict[str, Any] | None:
    """Return how many questions of the home's own history are answered; None if none was asked yet."""
    runs = probe_runs.read_runs(home, datetime.now(UTC))
    if not runs:
        return None
    warning = probe_runs.find_warning(probe_runs.find_drift(home, runs))
    return {"at": runs[-1].at, "asked": len(runs[-1].answers), "answered": runs[-1].n_answered, "warning": warning}


def describe_probes(counts: dict[str, Any] | None) -> str:
    """Say how many questions of the home's own history are answered, and whether that fell; "" without any."""
    if counts is None:
        return ""
    state = f"{counts['answered']:,} of {format_count(counts['asked'], 'question')} of your history answered"
    return f"{state}; {counts['warning']}" if counts["warning"] else state
