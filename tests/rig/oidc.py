"""OpenID providers for tests: a real one (npm's oidc-provider), and one whose every answer a test may change."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey

from rig import clients

CLIENT_SECRET = "secret of the client"
_SCRIPT = Path(__file__).with_name("oidc.mjs")
_START_S = 60


class RealProvider:
    """A certified provider, in a process of node. It can be started again with other keys, at the same address."""

    def __init__(self, redirect: str, *, method: str = "client_secret_basic") -> None:
        try:
            self._program, self._node = clients.program("oidc-provider"), clients.program("node")
        except clients.Missing as missing:
            pytest.skip(f"no real OpenID provider: {missing}")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._redirect, self._method = redirect, method
        self.issuer = f"http://localhost:{self._port}"
        self.start()

    def start(self) -> None:
        """Start it, with new keys."""
        line = [str(self._node), str(_SCRIPT), str(self._program), str(self._port), self._redirect, self._method]
        self._process = subprocess.Popen(
            line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        timer = threading.Timer(_START_S, self._process.kill)
        timer.start()
        assert any(line == "ready\n" for line in self._process.stdout), "the provider did not start"
        timer.cancel()

    def stop(self) -> None:
        """End it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


def make_key(kind: str = "RSA", kid: str = "") -> RSAKey | ECKey:
    """Return a new key that signs."""
    parameters = {"kid": kid or secrets.token_hex(4), "use": "sig"}
    if kind == "EC":
        return ECKey.generate_key("P-256", parameters)  # type: ignore[arg-type]
    return RSAKey.generate_key(2048, parameters)  # type: ignore[arg-type]


class ScriptedProvider(ThreadingHTTPServer):
    """A provider that lets `subject` in at once. `description`, `claims`, `key` and `published` may be changed."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Desk)
        self.issuer = f"http://localhost:{self.server_address[1]}"
        self.description: dict[str, Any] = {
            "issuer": self.issuer, "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token", "jwks_uri": f"{self.issuer}/keys",
        }  # fmt: skip
        self.subject = "248289761001"
        self.claims: dict[str, Any] = {}  # instead of those of a good token
        self.key = make_key()
        self.algorithm = "RS256"
        self.published = [self.key]
        self.codes: dict[str, dict[str, str]] = {}
        self.asked: list[str] = []
        self.tokens: list[str] = []

    def __enter__(self) -> ScriptedProvider:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def make_token(self, nonce: str, /, **claims: Any) -> str:
        """Return a token of this provider; a claim of None is left out."""
        now_s = int(time.time())
        good = {"iss": self.issuer, "aud": "perdure", "sub": self.subject, "nonce": nonce, "iat": now_s,
                "exp": now_s + 300, "preferred_username": "bob"}  # fmt: skip
        body = {name: value for name, value in {**good, **claims}.items() if value is not None}
        header = {"alg": self.algorithm, "kid": self.key.kid}
        return jwt.encode(header, body, self.key, algorithms=[self.algorithm])

    def answer(self, path: str, query: dict[str, str], authorization: str) -> tuple[int, dict[str, Any] | str]:
        """Return (status, what to say); a text is where to go."""
        if path == "/.well-known/openid-configuration":
            return 200, self.description
        if path == "/keys":
            return 200, dict(KeySet(list(self.published)).as_dict(private=False))
        if path == "/authorize":
            code = secrets.token_hex(8)
            self.codes[code] = query
            return 303, f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"
        assert path == "/token", path
        begun = self.codes.pop(query.get("code", ""), None)
        challenge = hashlib.sha256(query.get("code_verifier", "").encode()).digest()
        pair = base64.b64decode(authorization.removeprefix("Basic ")).decode() if authorization else ""
        is_client = unquote(pair) == f"perdure:{CLIENT_SECRET}"
        is_begun = begun is not None and begun["redirect_uri"] == query["redirect_uri"]
        if not (begun and is_begun and is_client):
            return 400, {"error": "invalid_grant"}
        if base64.urlsafe_b64encode(challenge).rstrip(b"=").decode() != begun["code_challenge"]:
            return 400, {"error": "invalid_grant", "error_description": "wrong verifier"}
        token = self.make_token(begun["nonce"], **self.claims)
        self.tokens.append(token)
        return 200, {"access_token": "opaque", "token_type": "Bearer", "id_token": token}


class _Desk(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    server: ScriptedProvider

    def do_GET(self) -> None:
        self._answer(urlsplit(self.path).query)

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode())

    def _answer(self, fields: str) -> None:
        path, query = urlsplit(self.path).path, {name: values[-1] for name, values in parse_qs(fields).items()}
        self.server.asked.append(path)
        status, said = self.server.answer(path, query, self.headers.get("Authorization") or "")
        raw = b"" if isinstance(said, str) else json.dumps(said).encode()
        self.send_response(status)
        if isinstance(said, str):
            self.send_header("Location", said)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def start_real(redirect: str, **options: Any) -> Iterator[RealProvider]:
    """Run a real provider; skipped, and said so, where it cannot be had."""
    provider = RealProvider(redirect, **options)
    try:
        yield provider
    finally:
        provider.stop()
