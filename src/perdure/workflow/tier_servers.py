"""Servers of the tiers that this home brings up: processes that stay when the command that started them ends.

Each has a folder in the home with its settings, keys, data, log and lock. A server inherits its open lock, so the
lock is held as long as the server lives, and the process id in it is right as long as it is held. Each listens on
this machine alone, and asks for a password that was made for it.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from perdure import disk
from perdure.environ import copy_variables
from perdure.errors import Busy, TierFault

_HOST = "127.0.0.1"
_PORTS = range(20_000, 32_000)  # below those that systems give away for a moment
_STOP_S = 20.0
BUCKET = "perdure"


class ServerKeys(msgspec.Struct, frozen=True):
    """What a server was given when it was made, and keeps."""

    ports: tuple[int, ...]
    name: str
    secret: str
    signing: str  # from which the parts of one server know each other


class TierServer:
    """One server of this home: `is_running`, `start`, `stop`."""

    def __init__(self, folder: Path, *, n_ports: int) -> None:
        """Read the keys of the server in this folder, or make them."""
        self.folder = folder
        self.log_path = folder / "server.log"
        self._lock_path = folder / "server.lock"
        keys_path = folder / "keys.json"
        if not keys_path.exists():
            disk.make_folder(folder / "data")
            keys = ServerKeys(_find_free_ports(n_ports), *(secrets.token_hex(n) for n in (10, 20, 32)))
            disk.replace_file(keys_path, msgspec.json.encode(keys))
        self.keys = msgspec.json.decode(keys_path.read_bytes(), type=ServerKeys)

    @property
    def is_running(self) -> bool:
        """Is there a process of this server?"""
        try:
            with disk.lock_file(self._lock_path, wait_s=0):
                return False
        except Busy:
            return True

    def start(self, command: Sequence[str], *, variables: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start the server, in its folder. Raises TierFault if it cannot be started, Busy if it runs."""
        with contextlib.suppress(FileNotFoundError):
            self.log_path.replace(self.log_path.with_suffix(".log.old"))
        with disk.lock_file(self._lock_path, wait_s=0) as descriptor, self.log_path.open("wb") as log_file:
            os.ftruncate(descriptor, 0)
            try:
                process = subprocess.Popen(
                    command, cwd=self.folder, env={**copy_variables(), **(variables or {})}, stdin=subprocess.DEVNULL,
                    stdout=log_file, stderr=log_file, pass_fds=(descriptor,), start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise TierFault(f"{command[0]} does not start ({error})") from error
            os.write(descriptor, str(process.pid).encode())
        return process

    def stop(self) -> bool:
        """End the process, and wait until it is gone. Return False if there was none. Raises TierFault."""
        if not self.is_running:
            return False
        pid = int(self._lock_path.read_text() or 0)
        if not pid:
            raise TierFault(f"the server in {self.folder} runs, but was not started as a whole: end it yourself")
        for ending in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, ending)
            deadline_s = time.monotonic() + _STOP_S
            while time.monotonic() < deadline_s:
                if not self.is_running:
                    return True
                time.sleep(0.05)
        raise TierFault(f"the server in {self.folder} does not end (process {pid})")

    def read_log_end(self) -> str:
        """Return the last line of the log; "" if there is none."""
        try:
            lines = self.log_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        except FileNotFoundError:
            return ""
        return lines[-1] if lines else ""


class RedisTierServer(TierServer):
    """A Redis-compatible server that has every command on disk before it answers."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, n_ports=1)
        self.url = f"redis://:{self.keys.secret}@{_HOST}:{self.keys.ports[0]}/0"

    def launch(self, program: Path) -> subprocess.Popen[bytes]:
        """Start it. The password stands in a file that only the owner reads, not in the list of processes."""
        rows = {
            "bind": _HOST, "port": self.keys.ports[0], "protected-mode": "yes", "requirepass": self.keys.secret,
            "dir": "data", "appendonly": "yes", "appendfsync": "always", "save": '""', "daemonize": "no",
            "maxmemory-policy": "noeviction",
        }  # fmt: skip
        text = "".join(f"{name} {value}\n" for name, value in rows.items())
        disk.replace_file(self.folder / "redis.conf", text.encode())
        return self.start([str(program), "redis.conf"])


class ObjectTierServer(TierServer):
    """An S3-compatible store: SeaweedFS, all of its parts in one process."""

    _PARTS = ("s3", "master", "volume", "filer")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, n_ports=2 * len(self._PARTS))
        self.address = f"s3://{BUCKET}/tiers"
        self.variables = {
            "AWS_ENDPOINT_URL": f"http://{_HOST}:{self.keys.ports[0]}",
            "AWS_ACCESS_KEY_ID": self.keys.name,
            "AWS_SECRET_ACCESS_KEY": self.keys.secret,
        }

    def launch(self, program: Path) -> subprocess.Popen[bytes]:
        """Start it. Its parts ask each other for signed tokens, so that their HTTP ports give nobody else a blob."""
        credentials = [{"accessKey": self.keys.name, "secretKey": self.keys.secret}]
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        identity = {"name": "perdure", "credentials": credentials, "actions": actions}
        disk.replace_file(self.folder / "s3.json", msgspec.json.encode({"identities": [identity]}))
        options = {
            "ip": _HOST, "ip.bind": _HOST, "dir": "data", "s3": "true", "s3.config": "s3.json", "s3.port.iceberg": 0,
            "s3.port.lance": 0, "s3.localSocket": "s3.sock", "filer.localSocket": "filer.sock",
            "master.telemetry": "false", "master.electionTimeout": "1s",  # 10 s otherwise, and there is one master
            "master.volumeSizeLimitMB": 1024, "volume.max": 0, "volume.preStopSeconds": 0,
        }  # fmt: skip
        for number, part in enumerate(self._PARTS):
            options |= {f"{part}.port": self.keys.ports[number], f"{part}.port.grpc": self.keys.ports[number + 4]}
        names = ("JWT_SIGNING_KEY", "JWT_SIGNING_READ_KEY", "JWT_FILER_SIGNING_KEY", "JWT_FILER_SIGNING_READ_KEY")
        signing = {f"WEED_{name}": f"{self.keys.signing}{number}" for number, name in enumerate(names)}
        arguments = [f"-{name}={value}" for name, value in options.items()]
        return self.start([str(program), "server", *arguments], variables=signing)


def _find_free_ports(n: int) -> tuple[int, ...]:
    ports: set[int] = set()
    while len(ports) < n:
        port = random.choice(_PORTS)
        with socket.socket() as candidate, contextlib.suppress(OSError):
            candidate.bind((_HOST, port))
            ports.add(port)
    return tuple(sorted(ports))
