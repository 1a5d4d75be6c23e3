"""Where an endpoint is, as the settings say it. Pure: nothing is asked."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from perdure.errors import ConfigFault

_LOCAL = ("localhost", "127.0.0.1", "::1")


def checked(address: str, *, key: str | None, setting: str) -> SplitResult:
    """Return the parts of an endpoint's URL.

    setting: the table that names it, "models.embedder". Raises ConfigFault for what cannot be meant, and where a key
    would travel in the clear: over plain HTTP it goes to this machine only.
    """
    url = urlsplit(address)
    try:
        is_meant = url.scheme in ("http", "https") and url.hostname and (url.port or 1)
    except ValueError:
        is_meant = False
    if not is_meant or url.username or url.query or url.fragment:
        raise ConfigFault(f"{setting}.url = {address!r} (expected something like http://127.0.0.1:11434)")
    if key and url.scheme == "http" and url.hostname not in _LOCAL:
        raise ConfigFault(f"{setting}.key_env: the key would travel in the clear to {url.hostname}; use https")
    return url
