"""The first step of a hook's process: hand the event to the resident home, which does the work of the hook for it.

A process that imports all that a hook needs spends more time on that than on its work, and the resident home has it
imported. So this module imports three small modules and sends the event as it came. Whenever anything is not as
usual (no resident home, one of another version, one that declines or dies), this process goes on as the whole hook.
Nothing depends on the resident home but the time.

The request is one line of JSON; its texts are in hexadecimal, because that needs no module:
`{"op": "hook", "age_ms": 9, "arguments": "…", "user": "…", "folders": "…", "payload": "…"}`. The answer is `-` where
the resident home declines. Otherwise it is a line with the time limit in milliseconds, then all that is to be printed,
then a newline, by which a whole answer is known.
"""

import os
import stat
import time

TYPE_CHECKING = False  # as typing's own, which a hook would pay for
if TYPE_CHECKING:
    import signal
    import socket
else:
    import _signal as signal  # only the C halves of both: the rest costs every hook milliseconds
    import _socket as socket

_USER_VARIABLES = (b"LOGNAME", b"USER", b"LNAME", b"USERNAME")  # the first that is set names the user
_FOLDER_VARIABLES = (  # of the clients: where they keep what the start of a session captures, or any event
    b"CLAUDE_CONFIG_DIR", b"CODEX_HOME", b"PI_CODING_AGENT_DIR", b"GEMINI_CLI_HOME", b"COPILOT_HOME", b"XDG_DATA_HOME",
    b"KIMI_CODE_HOME",
)  # fmt: skip
_NAMESPACE = "/proc/self/ns/mnt"  # of the file systems that a process sees
_LIMIT_S = 1.0  # until the resident home says what the settings say
_FIRST_ANSWER_S = 0.25  # a resident home that has not taken the event by then is stuck
_GRACE_S = 0.05  # for the resident home's own answer at the limit to arrive
_MAX_INPUT_BYTES = 4_000_000  # a larger event is handled here
_MAX_SOCKET_PATH_BYTES = 100  # as in `events`: a longer path is elsewhere


class _ResidentLate(Exception):
    """The resident home took the event, and did not answer within the limit."""


def launch(arguments: list[str]) -> tuple[bytes, float, bool]:
    """Let the resident home answer one event, and end this process; or return what the whole hook needs.

    Returns (the event, when this process began, True if the resident home took the event and is late).
    """
    began_at = time.monotonic() - time.process_time()  # includes the start of the interpreter
    signal.signal(signal.SIGALRM, _raise_timeout)
    _limit_time(_LIMIT_S - (time.monotonic() - began_at))
    payload, is_late = _read_input(), False
    try:
        output = _ask_resident(arguments, payload, began_at)
    except (OSError, _ResidentLate) as error:
        output, is_late = None, isinstance(error, _ResidentLate)
    signal.setitimer(signal.ITIMER_REAL, 0)
    if output is None:
        return payload, began_at, is_late
    while output:
        output = output[os.write(1, output) :]
    os._exit(0)


def describe_user() -> bytes:
    """Return the facts of this process that decide who captures which files: its user and its file systems."""
    try:
        namespace = os.readlink(_NAMESPACE)  # noqa: PTH115 - a path object costs milliseconds
    except OSError:  # not on Linux
        namespace = ""
    user = next(filter(None, map(os.environb.get, _USER_VARIABLES)), b"")
    return b"\0".join((user, os.environb.get(b"HOME", b""), namespace.encode(), b"%d" % os.geteuid()))


def describe_folders() -> bytes:
    """Return the folders that this process's variables give to clients."""
    return b"\0".join(os.environb.get(name, b"") for name in _FOLDER_VARIABLES)


def _raise_timeout(*_: object) -> None:
    raise TimeoutError


def _limit_time(limit_s: float) -> None:
    signal.setitimer(signal.ITIMER_REAL, max(0.001, limit_s))


def _read_input() -> bytes:
    """Return what the client writes, to its end."""
    blocks = []
    while block := os.read(0, 1 << 16):
        blocks.append(block)
    return b"".join(blocks)


def _ask_resident(arguments: list[str], payload: bytes, began_at: float) -> bytes | None:
    """Return what the resident home prints for this event, or None if it cannot be asked or declines.

    Raises OSError when it does not take the event or dies, and _ResidentLate when it is not ready in time.
    """
    path = _find_socket(arguments)
    if not path or len(payload) > _MAX_INPUT_BYTES:
        return None
    status = os.stat(path)  # noqa: PTH116 - as above
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.geteuid():
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    _limit_time(_FIRST_ANSWER_S)
    connection.connect(path)
    connection.sendall(_build_request(arguments, payload, began_at))
    first_line, _, data = _receive(connection, b"", b"\n").partition(b"\n")
    if not first_line.isdigit():
        return None
    try:
        _limit_time(began_at + int(first_line) / 1000 + _GRACE_S - time.monotonic())
        data = _receive(connection, data, b"")
    except TimeoutError as error:
        raise _ResidentLate from error
    if data[-1:] != b"\n":
        raise ConnectionResetError
    return data[:-1]


def _find_socket(arguments: list[str]) -> str:
    """Return the path of the home's socket; "" if this module cannot know it."""
    if "--home" not in arguments[:-1]:
        return ""
    path = arguments[arguments.index("--home") + 1] + "/run/home.sock"
    return path if path.startswith("/") and len(os.fsencode(path)) <= _MAX_SOCKET_PATH_BYTES else ""


def _build_request(arguments: list[str], payload: bytes, began_at: float) -> bytes:
    texts = (os.fsencode("\0".join(arguments)), describe_user(), describe_folders(), payload)
    age_ms = (time.monotonic() - began_at) * 1000
    line = '{"op": "hook", "age_ms": %d, "arguments": "%s", "user": "%s", "folders": "%s", "payload": "%s"}\n'
    return (line % (age_ms, *(text.hex() for text in texts))).encode()


def _receive(connection: socket.socket, data: bytes, end: bytes) -> bytes:
    """Return the bytes that arrive, up to one block with `end` in it, or all of them without one."""
    while not (end and end in data) and (block := connection.recv(1 << 16)):
        data += block
    return data
