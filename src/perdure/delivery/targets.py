"""The kinds of targets: which settings each reads, which it needs, and the function that sends to it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.config import DeliveryConfig
from perdure.delivery.file_target import append_to_file, find_folder
from perdure.delivery.message import Delivery, DeliveryFile, MarkStep
from perdure.errors import ConfigFault

SendMessage = Callable[[DeliveryConfig, Delivery, Sequence[DeliveryFile], MarkStep], None]


def _import_late(module: str, name: str) -> SendMessage:
    """Return a function that is imported when it sends: a home that never does would keep its libraries in memory."""

    def send(*message: Any) -> None:
        getattr(importlib.import_module(f"perdure.delivery.{module}"), name)(*message)

    return send


@dataclass(frozen=True)
class TargetKind:
    """One kind of target."""

    send: SendMessage  # raises DeliveryFault, DeliveryRefused, ConfigFault, OSError
    needed: tuple[str, ...]  # settings without which there is no sending
    other: tuple[str, ...]  # settings that it also reads


KINDS: Mapping[str, TargetKind] = {
    "file": TargetKind(append_to_file, ("folder",), ("file",)),
    "webhook": TargetKind(
        _import_late("webhook", "call_webhook"), ("url",), ("secret_env", "token_env", "plain", "ca", "timeout_s")
    ),
    "mail": TargetKind(
        _import_late("mail", "send_mail"),
        ("host", "sender", "recipients"),
        ("port", "tls", "user", "password_env", "plain", "ca", "timeout_s"),
    ),
    "telegram": TargetKind(_import_late("telegram", "send_to_chat"), ("token_env", "chat"), ("url", "timeout_s")),
}
_FOR_ALL = ("kind", "tries")


def check_target(home: Path, name: str, config: DeliveryConfig) -> None:
    """Raise ConfigFault if the settings of a target make no sense; nothing is contacted."""
    kind = KINDS.get(config.kind)
    if kind is None:
        raise ConfigFault(f"delivery.{name}.kind = {config.kind!r} (known: {', '.join(KINDS)})")
    default = DeliveryConfig()
    for setting in DeliveryConfig._fields:
        is_set = getattr(config, setting) != getattr(default, setting)
        if setting in kind.needed and not is_set:
            raise ConfigFault(f"delivery.{name}.{setting} must be set for kind = {config.kind!r}")
        if is_set and setting not in (*kind.needed, *kind.other, *_FOR_ALL):
            raise ConfigFault(f"delivery.{name}.{setting} has no meaning for kind = {config.kind!r}")
    if config.tries < 1:
        raise ConfigFault(f"delivery.{name}.tries = {config.tries} (1 or more)")
    if config.kind == "file" and find_folder(config).is_relative_to(home.resolve()):
        raise ConfigFault(f"delivery.{name}.folder lies in the home of Perdure: choose one outside of it")


def send_to_target(
    home: Path, config: DeliveryConfig, delivery: Delivery, files: Sequence[DeliveryFile], mark_step: MarkStep
) -> None:
    """Send a message once. Raises DeliveryFault, DeliveryRefused, ConfigFault, OSError."""
    check_target(home, delivery.target, config)
    KINDS[config.kind].send(config, delivery, files, mark_step)
