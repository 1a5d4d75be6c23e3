"""The settings that a provider needs for a role, and the check of an endpoint's URL. Pure: nothing is
contacted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from perdure.errors import ConfigFault

# Installed clients as providers, and the tokens that each adds to a question: measured 540 and 2,150 (docs/models.md).
CLIENT_OVERHEAD_TOKENS = {"claude-cli": 1_000, "codex-cli": 3_000}


@dataclass(frozen=True)
class ModelSettings:
    """One model, and the options of a call to it."""

    name: str  # "provider:model"
    model: str  # name at the provider, or path of the file
    url: SplitResult
    key: str | None = field(default=None, repr=False)
    thinking: str = ""  # "on", "off", or "" for the model's default
    effort: str = ""  # the provider's word, or "" for the model's default
    max_output_tokens: int = 4096  # thoughts included
    timeout_s: float = 120.0  # of one call with its retries
    program: str = ""  # path of an installed client; "": found on the PATH
    window_tokens: int = 128_000  # of the model's context, which question and answer share

    @property
    def endpoint(self) -> str:
        """The API and its host, "openai:api.deepseek.com": whose native blocks it takes back."""
        api, _, model = self.name.partition(":")
        return f"{api}:{self.url.netloc or model}"


_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


def check_url(raw_url: str, *, key: str | None, setting: str) -> SplitResult:
    """Return the parts of an endpoint's URL.

    setting: the table of settings that holds it, "models.embedder". Raises ConfigFault for an invalid URL,
    and for a key that would travel in the clear: over plain HTTP a key goes to this machine only.
    """
    url = urlsplit(raw_url)
    try:
        is_valid = url.scheme in ("http", "https") and url.hostname and (url.port or 1)
    except ValueError:
        is_valid = False
    if not is_valid or url.username or url.query or url.fragment:
        raise ConfigFault(f"{setting}.url = {raw_url!r} (expected something like http://127.0.0.1:11434)")
    if key and url.scheme == "http" and url.hostname not in _LOCAL_HOSTS:
        raise ConfigFault(f"{setting}.key_env: the key would be sent unencrypted to {url.hostname}; use https")
    return url
