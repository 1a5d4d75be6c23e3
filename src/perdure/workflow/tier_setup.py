"""The back ends of the tiers of a home: where they are, whether they answer, and how to bring them up.

A back end is named by variables, in this order: of the environment, of the program's own environment file, and of the
file that this home keeps. What a person wrote there counts, and is never changed.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from perdure import disk
from perdure.access.redact import mask
from perdure.environ import read_variable
from perdure.errors import PerdureError, TierFault, TierStartFault, UsageError
from perdure.workflow import redis_store
from perdure.workflow.blobs import open_address, open_blobs
from perdure.workflow.tier_programs import OBJECT_PROGRAM, REDIS_PROGRAM, TierProgram
from perdure.workflow.tier_queue import map_client_errors
from perdure.workflow.tier_servers import BUCKET, ObjectTierServer, RedisTierServer

REDIS_VARIABLE, BLOBS_VARIABLE = "REDIS_URL", "PERDURE_BLOBS"
S3_VARIABLES = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")
VARIABLES = (REDIS_VARIABLE, BLOBS_VARIABLE, *S3_VARIABLES)
_LOCAL_REDIS = "redis://127.0.0.1:6379"
_LOCAL_OBJECTS = ("http://127.0.0.1:8333", "http://127.0.0.1:9000")  # SeaweedFS, MinIO
_FOUND_S = 5.0  # for a server that is not ours
_HEADER = "# The tiers of workflows (perdure memory init)\n"
_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*?)\s*$")
_CHECK = """
redis.call('XADD', KEYS[1], '*', 'check', '1')
redis.call('EXPIRE', KEYS[1], 60)
return redis.call('DEL', KEYS[1])
"""


@dataclass(frozen=True)
class TierBackEnd:
    """One back end: a Redis-compatible server, or a place for blobs."""

    name: str  # "redis" or "blobs"
    address: str  # redis://…, s3://…, or a folder
    variables: Mapping[str, str] = field(repr=False)  # by which a program finds it
    server: RedisTierServer | ObjectTierServer | None = None  # of this home

    @property
    def shown_address(self) -> str:
        """The address without its password."""
        parts = urlsplit(self.address)
        if parts.password is None:
            return self.address
        return urlunsplit(parts._replace(netloc=f"***@{parts.netloc.rpartition('@')[2]}"))

    @property
    def store(self) -> Any:
        """What `UnifiedMemory` takes as `redis_store` or `blob_storage`."""
        if self.name == "blobs" and "://" in self.address:
            return open_address(
                self.address, {name: self.variables[name] for name in S3_VARIABLES if name in self.variables}
            )
        return self.address

    def check(self) -> None:
        """Write something, and take it away or read it back. Raises TierFault."""
        try:
            if self.name == "redis":
                self._check_redis()
            else:
                self._check_blobs()
        except (PerdureError, OSError, ValueError) as error:  # a client says much more than its first line
            reason = error.detail if isinstance(error, TierFault | UsageError) else str(error)
            raise TierFault(mask(reason.partition("\n")[0])) from error

    def _check_redis(self) -> None:
        client = redis_store.connect(self.address)
        with contextlib.closing(client), map_client_errors("the Redis-compatible server"):
            client.eval(_CHECK, 1, f"perdure:check:{time.time_ns()}")

    def _check_blobs(self) -> None:
        if "://" not in self.address and not Path(self.address).is_dir():
            raise TierFault("the folder is not there")
        blobs = open_blobs(self.store)
        blobs.put("check", b"perdure memory")
        if blobs.get("check") is None:
            raise TierFault("a blob that was written is not there")


# where they are -------------------------------------------------------------------------------------------------


def get_folder(home_path: Path) -> Path:
    """Return the folder of a home in which its tiers are."""
    return home_path / "tiers"


def read_variables(home_path: Path, env_file: Path | None) -> dict[str, str]:
    """Return the variables that name back ends."""
    variables = read_env_file(get_folder(home_path) / "tiers.env")
    variables |= read_env_file(env_file) if env_file else {}
    variables |= {name: value for name in VARIABLES if (value := read_variable(name))}
    return {name: variables[name] for name in VARIABLES if variables.get(name)}


def find_back_ends(home_path: Path, env_file: Path | None) -> list[TierBackEnd]:
    """Return the back ends that are set, whether they answer or not."""
    variables, folder = read_variables(home_path, env_file), get_folder(home_path)
    back_ends = [make_redis(folder, variables[REDIS_VARIABLE])] if REDIS_VARIABLE in variables else []
    address = variables.get(BLOBS_VARIABLE)
    return back_ends + ([make_blobs(folder, address, variables)] if address else [])


def make_redis(folder: Path, url: str = "") -> TierBackEnd:
    """Return the back end of an address; of this home's own server for "", or if it is its address."""
    if not url or _is_made(folder / "redis"):
        server = RedisTierServer(folder / "redis")
        if url in ("", server.url):
            return TierBackEnd("redis", server.url, {REDIS_VARIABLE: server.url}, server)
    return TierBackEnd("redis", url, {REDIS_VARIABLE: url})


def make_blobs(folder: Path, address: str, variables: Mapping[str, str]) -> TierBackEnd:
    """Return the back end of an address or a folder; of this home's own object store for "s3", or if it is its
    address.
    """
    if address == "s3" or _is_made(folder / "objects"):
        server = ObjectTierServer(folder / "objects")
        endpoint = server.variables["AWS_ENDPOINT_URL"]
        if address == "s3" or (address == server.address and variables.get("AWS_ENDPOINT_URL", endpoint) == endpoint):
            return TierBackEnd("blobs", server.address, {BLOBS_VARIABLE: server.address, **server.variables}, server)
    credentials = {name: variables[name] for name in S3_VARIABLES if name in variables} if "://" in address else {}
    return TierBackEnd("blobs", address, {BLOBS_VARIABLE: address, **credentials})


def list_servers(folder: Path) -> list[RedisTierServer | ObjectTierServer]:
    """Return the servers that this home has made."""
    servers: list[RedisTierServer | ObjectTierServer] = []
    servers += [RedisTierServer(folder / "redis")] if _is_made(folder / "redis") else []
    return servers + ([ObjectTierServer(folder / "objects")] if _is_made(folder / "objects") else [])


def _is_made(folder: Path) -> bool:
    return (folder / "keys.json").exists()


# which are wanted -----------------------------------------------------------------------------------------------


def choose_redis(folder: Path, variables: Mapping[str, str], *, own: bool) -> TierBackEnd:
    """Return the server that is set, or this home's own, or one that runs at Redis's port; or a new one of this home.

    own: take no server but one of this home.
    """
    if REDIS_VARIABLE in variables and not own:
        return make_redis(folder, variables[REDIS_VARIABLE])
    if not own and not _is_made(folder / "redis") and _answers(local := make_redis(folder, _LOCAL_REDIS)):
        return local
    return make_redis(folder)


def choose_blobs(folder: Path, variables: Mapping[str, str], wanted: str, *, own: bool) -> TierBackEnd:
    """Return the place for blobs that is wanted: "folder", "s3", a folder, an address; "" for the one that is set.

    Raises UsageError where an own object store would need other keys than those that are set.
    """
    if wanted == "" and BLOBS_VARIABLE in variables:
        return make_blobs(folder, variables[BLOBS_VARIABLE], variables)
    if wanted in ("", "folder"):
        return make_blobs(folder, str(folder / "blobs"), variables)
    if wanted != "s3":
        return make_blobs(folder, wanted if "://" in wanted else str(Path(wanted).expanduser().absolute()), variables)
    if not own and variables.get(BLOBS_VARIABLE, "").startswith("s3://"):
        return make_blobs(folder, variables[BLOBS_VARIABLE], variables)
    if own or _is_made(folder / "objects") or "AWS_ACCESS_KEY_ID" not in variables:
        return make_blobs(folder, "s3", variables)
    for endpoint in [variables["AWS_ENDPOINT_URL"]] if "AWS_ENDPOINT_URL" in variables else _LOCAL_OBJECTS:
        back_end = make_blobs(folder, f"s3://{BUCKET}/tiers", {**variables, "AWS_ENDPOINT_URL": endpoint})
        if _answers(back_end):
            return back_end
    raise UsageError(
        f"AWS_ACCESS_KEY_ID is set for a store that does not let it write into the bucket {BUCKET}: make that bucket, "
        "or name another one (`--blobs s3://BUCKET/FOLDER`), or take a folder (`--blobs folder`)"
    )


def _answers(back_end: TierBackEnd) -> bool:
    try:
        back_end.check()
    except TierFault:
        return False
    return True


# bringing them up -----------------------------------------------------------------------------------------------


def bring_up(back_end: TierBackEnd, folder: Path, *, wait_s: float, note: Callable[[str], None]) -> bool:
    """Start the server of a back end if it is this home's and does not run, and wait until it answers.

    Returns True if it was started now. note: is told before a program is downloaded. Raises TierStartFault,
    PackageMissing.
    """
    process = None
    if back_end.server is not None and not back_end.server.is_running:
        process = _launch(back_end.server, folder / "packages", note)
    elif back_end.server is None:
        wait_s = min(wait_s, _FOUND_S)
        if back_end.name == "blobs" and "://" not in back_end.address:
            disk.make_folder(Path(back_end.address))
    try:
        _wait(back_end, process, wait_s)
    except PerdureError:
        if process is not None and back_end.server is not None:
            back_end.server.stop()
        raise
    return process is not None


def _launch(
    server: RedisTierServer | ObjectTierServer, packages: Path, note: Callable[[str], None]
) -> subprocess.Popen[bytes]:
    program: TierProgram = REDIS_PROGRAM if isinstance(server, RedisTierServer) else OBJECT_PROGRAM
    path = program.find(packages)
    if path is None:
        note(f"Downloading {program.requirement} ({program.size}) into {packages}")
        path = program.download(packages)
    return server.launch(path)


def _wait(back_end: TierBackEnd, process: subprocess.Popen[bytes] | None, wait_s: float) -> None:
    deadline_s = time.monotonic() + wait_s
    while True:
        try:
            back_end.check()
            return
        except TierFault as fault:
            server = back_end.server
            log_end = f"; its log, {server.log_path}, ends with: {server.read_log_end()}" if server else ""
            if process is not None and process.poll() is not None:
                raise TierStartFault(f"{back_end.shown_address} ended{log_end}") from fault
            if time.monotonic() > deadline_s:
                reason = log_end or f" ({fault.detail}): start it, or let `--own` start one for this home"
                raise TierStartFault(f"{back_end.shown_address} gave no answer in {wait_s:g} s{reason}") from fault
        time.sleep(0.1)


# the environment file -------------------------------------------------------------------------------------------


def read_env_file(path: Path) -> dict[str, str]:
    """Return the variables of a file of lines NAME=VALUE; {} if there is none. The last line of a name counts."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    pairs = [match.groups() for line in text.splitlines() if (match := _LINE.match(line))]
    return {name: _unquote(value) for name, value in pairs}


def _unquote(value: str) -> str:
    """Return a value as a shell reads it, as far as that needs no other variable."""
    try:
        words = shlex.split(value, comments=True)
    except ValueError:
        return value
    return words[0] if words else ""


def list_conflicts(path: Path, variables: Mapping[str, str]) -> list[str]:
    """Return the names to which the environment or the file gives another value than these."""
    present = read_env_file(path) | {name: value for name in variables if (value := read_variable(name))}
    return [name for name, value in variables.items() if present.get(name, value) != value]


def add_to_env_file(path: Path, variables: Mapping[str, str]) -> list[str]:
    """Append what the file does not have, to a file of mode 0600 if it is new. Return the names that were added.

    Raises UsageError if it cannot be written.
    """
    present = read_env_file(path)
    added = {name: value for name, value in variables.items() if name not in present}
    if added:
        is_new = not path.exists()
        text = "" if is_new else path.read_text(encoding="utf-8", errors="replace")
        separator = "" if not text else "\n" if text.endswith("\n") else "\n\n"
        try:
            with path.open("a", encoding="utf-8") as file:
                if is_new:
                    path.chmod(0o600)
                file.write(f"{separator}{_HEADER}{_format_lines(added)}")
        except OSError as error:
            raise UsageError(f"{path} cannot be written ({error.strerror}): name another --env-file") from error
    return list(added)


def keep_variables(home_path: Path, variables: Mapping[str, str]) -> None:
    """Keep in the home which back ends it uses, for commands that run elsewhere."""
    disk.make_folder(get_folder(home_path))
    disk.replace_file(get_folder(home_path) / "tiers.env", f"{_HEADER}{_format_lines(variables)}".encode())


def _format_lines(variables: Mapping[str, str]) -> str:
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items())
