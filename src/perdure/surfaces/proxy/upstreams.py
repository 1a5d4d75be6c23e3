"""Where a request goes on to: only to the addresses of the settings. And which key never goes where. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from perdure.config import ProxyConfig
from perdure.errors import ConfigFault
from perdure.surfaces.proxy.conversations import Api

_DEFAULTS = {"anthropic": "https://api.anthropic.com", "openai": "https://api.openai.com"}
_API_BY_ENDING: dict[str, Api] = {"/messages": "messages", "/chat/completions": "chat", "/responses": "responses"}
COUNT_ENDING = "/messages/count_tokens"
_KEYS = {"sk-ant-": "api.anthropic.com", "sk-proj-": "api.openai.com", "sk-svcacct-": "api.openai.com"}


@dataclass(frozen=True, slots=True)
class Upstream:
    """A server that requests may go on to."""

    name: str
    scheme: str
    host: str
    port: int | None
    path: str  # before the path of a request, without a slash at its end

    @property
    def host_header(self) -> str:
        """The value of the header `Host`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.port else host


def read_upstreams(settings: ProxyConfig) -> dict[str, Upstream]:
    """Return the upstreams by name: those of the settings, over the two defaults. Raises ConfigFault."""
    return {name: _read_upstream(name, address) for name, address in {**_DEFAULTS, **settings.upstreams}.items()}


def _read_upstream(name: str, address: object) -> Upstream:
    setting = f"proxy.upstreams.{name} = {address!r}"
    try:
        parts = urlsplit(address if isinstance(address, str) else "")
        port = parts.port
    except ValueError as error:
        raise ConfigFault(f"{setting} ({error})") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
        raise ConfigFault(f"{setting} (expected something like 'https://api.example.com')")
    if not name.replace("-", "").replace("_", "").isalnum() or name in ("v1", "healthz"):
        raise ConfigFault(f"proxy.upstreams.{name}: a name has letters, digits, - and _, and is not v1")
    return Upstream(name, parts.scheme, parts.hostname, port, parts.path.rstrip("/"))


def choose_upstream(upstreams: Mapping[str, Upstream], path: str, headers: Mapping[str, str]) -> tuple[Upstream, str]:
    """Return (the upstream, the path there). The first part of the path may name it; else the API tells.

    path: behind the secret, as the client sent it. headers: by name in lower case.
    """
    name, _, remainder = path.removeprefix("/").partition("/")
    if name in upstreams:
        return upstreams[name], f"/{remainder}"
    is_anthropic = "anthropic-version" in headers or "x-api-key" in headers or path.startswith("/v1/messages")
    return upstreams["anthropic" if is_anthropic else "openai"], path


def identify_api(method: str, path: str) -> tuple[Api | None, bool]:
    """Return (the API of a request that may be edited, True if it only counts tokens); None for all others.

    >>> identify_api("POST", "/v1/messages/count_tokens"), identify_api("GET", "/v1/models")
    (('messages', True), (None, False))
    """
    if method != "POST":
        return None, False
    if path.endswith(COUNT_ENDING):
        return "messages", True
    return next((api for ending, api in _API_BY_ENDING.items() if path.endswith(ending)), None), False


def is_foreign_key(upstream: Upstream, headers: Mapping[str, str]) -> bool:
    """Return True if a key is one of the other of the two large providers: it must not leave for this one.

    A client that takes one base URL for two providers sends such keys. Of other addresses nothing is known.
    """
    if upstream.host not in _KEYS.values():
        return False
    key = headers.get("x-api-key") or headers.get("authorization", "").partition(" ")[2]
    return any(key.startswith(opening) and upstream.host != host for opening, host in _KEYS.items())
