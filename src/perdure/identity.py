"""Ids and names: the one rule for project, run, turn and file names, for writing and reading alike.

Ids are computed, never assigned: the same bytes of the same source have the same id in every home,
so two homes that captured the same session agree without asking each other.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.errors import UsageError
from perdure.regex import lazy_re

if TYPE_CHECKING:  # `types` loads msgspec, which a hook has not
    from perdure.types import Source

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32, in ASCII order: ids sort like their bits
_COMPONENT = lazy_re(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}\Z")
_USER = lazy_re(r"[A-Za-z0-9_][A-Za-z0-9._@+-]{0,63}\Z")
_MACHINE = lazy_re(r"\w[\w .@+'-]{0,63}\Z")
_RUN_ID = lazy_re(rf"[{_ALPHABET}]{{26}}\Z")


def to_base32(number: int, n_chars: int) -> str:
    """Return the lowest 5 × n_chars bits of a number, most significant first.

    >>> to_base32(33, 2)
    '11'
    """
    return "".join(_ALPHABET[(number >> (5 * i)) & 31] for i in reversed(range(n_chars)))


def _hash(name: str) -> bytes:
    import hashlib  # 3 ms

    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()


def make_run_id(source: Source, from_offset: int, first_at: datetime | None) -> str:
    """Return the id of a run, 26 characters that sort by time.

    They are 48 bits of time in ms, then 80 bits of sha256(source, offset).
    """
    ms = max(0, int(first_at.timestamp() * 1000)) if first_at else 0
    digest = _hash(f"{source.key}\0{from_offset}")
    return to_base32(ms, 10) + to_base32(int.from_bytes(digest[:10], "big"), 16)


def get_run_month(identifier: str) -> str:
    """Return the folder of a run, yyyy-mm, read off its id. Raises UsageError for a text that is no run id."""
    return datetime.fromtimestamp(min(_read_ms(identifier), 253402300799000) / 1000, UTC).strftime("%Y-%m")


def get_run_time(identifier: str) -> datetime | None:
    """Return the time in a run's id, to the millisecond; None where it had none. Raises UsageError."""
    ms = _read_ms(identifier)
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms) if ms else None


def find_workflow_agent(session: str) -> str:
    """Return the agent whose turns a session of a workflow holds, behind the user of the workflow if one is set.

    A session is named [user:]workflow:step:agent:number; its parts have no colon. The agent is the stable name under
    which memory is found again, whatever workflow, step and process it works in.

    >>> find_workflow_agent("wf-1:step-1:researcher:s-8f"), find_workflow_agent("acme:wf-1:step-1:researcher:s-8f")
    ('researcher', 'acme:researcher')
    """
    parts = session.split(":")
    return ":".join([*parts[:-4], *parts[-2:-1]])


def _read_ms(identifier: str) -> int:
    if not is_run_id(identifier):
        raise UsageError(f"{identifier!r} is not a run id")
    ms = 0
    for char in identifier[:10]:
        ms = ms * 32 + _ALPHABET.index(char)
    return ms


def is_run_id(text: str) -> bool:
    """Return True if a string has the form of a run id; only such strings become paths."""
    return bool(_RUN_ID.match(text))


def make_turn_id(source: Source, offset: int) -> str:
    """Return the id of the turn whose first line starts at this byte of its source: `t` and 16 characters."""
    digest = _hash(f"turn\0{source.key}\0{offset}")
    return "t" + to_base32(int.from_bytes(digest[:10], "big"), 16)


def make_memory_id(created_at: datetime, entropy: bytes) -> str:
    r"""Return the id of a memory: the second of its creation, and three bytes to tell it from others of that second.

    >>> make_memory_id(datetime(2026, 3, 1, 9, 30, tzinfo=UTC), b"\x01\x02\x03")
    'mem-20260301-093000-010203'
    """
    return f"mem-{created_at.astimezone(UTC):%Y%m%d-%H%M%S}-{entropy[:3].hex()}"


def make_thread_run_id(containing_run: str, thread: str) -> str:
    """Return the id of the child run that an inline sidechain forms inside a captured run; sorts beside it."""
    digest = _hash(f"{containing_run}\0{thread}")
    return containing_run[:10] + to_base32(int.from_bytes(digest[:10], "big"), 16)


def check_user(name: str) -> str:
    """Return the user's name, if it can be a folder name on every platform. Raises UsageError otherwise."""
    if not _USER.match(name):
        raise UsageError(f"{name!r} cannot be a user: use letters, digits and . _ @ + -, at most 64")
    return name


def check_machine(name: str) -> str:
    """Return the machine's name, if people can tell it from others at a glance. Raises UsageError otherwise."""
    if not _MACHINE.match(name):
        raise UsageError(f"{name!r} cannot be a machine: use letters, digits, spaces and . _ @ + ' -, at most 64")
    return name


def to_path_component(name: str) -> str:
    """Return a name as one safe path component: itself if it is plain, otherwise a hash of it.

    Session ids come out of transcripts, which anyone may have written: `..`, slashes and NUL never reach a
    path.
    """
    if _COMPONENT.match(name):
        return name
    return "x-" + _hash(name).hex()[:40]


def find_project(cwd: str | None) -> str | None:
    """Return the project of a working directory: the root of its repository, or the folder itself.

    A linked worktree belongs to its main repository. A folder that is not on this machine is its own project.
    """
    if not cwd or "\0" in cwd:
        return None
    folder = Path(cwd)
    if not folder.is_absolute():
        return cwd
    for ancestor in (folder, *folder.parents):
        repository = _find_repository(ancestor)
        if repository:
            return repository
    return str(folder)


def _find_repository(folder: Path) -> str | None:
    """Return the repository whose root is `folder`, or None. A `.git` file (worktree) names its main repository."""
    marker = folder / ".git"
    try:
        if marker.is_dir():
            return str(folder)
        if not marker.is_file():
            return None
        pointer = marker.read_text(encoding="utf-8", errors="replace")[:4096].removeprefix("gitdir:").strip()
    except OSError:
        return None
    linked = (folder / pointer).absolute()
    return str(linked.parents[2]) if linked.parent.name == "worktrees" and len(linked.parents) > 2 else str(folder)


def make_workflow_tags(**names: str) -> list[str]:
    """Return the tags of the runs of a workflow, an agent, a step; an empty name has none.

    >>> make_workflow_tags(agent="researcher", user="")
    ['agent=researcher']
    """
    return [f"{kind}={name}" for kind, name in names.items() if name]
