"""What a provider must know of a role: the settings, with the key and the address that they lead to. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import SplitResult


@dataclass(frozen=True)
class Settings:
    """One model, and how it is to be asked."""

    name: str  # "provider:model"
    model: str  # its name at the provider, or the path of its file
    url: SplitResult
    key: str | None = field(default=None, repr=False)
    thinking: str = ""  # "on", "off", or "" for the model's own way
    effort: str = ""  # the provider's word, or "" for the model's own way
    max_output_tokens: int = 4096  # thoughts included
    timeout_s: float = 120.0  # of one call with its retries
