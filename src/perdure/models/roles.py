"""Which model serves which job, and what stands before every call: the mask, the caps, the meter.

A role without a provider has no model, and that is no error: rules do its work. What is sent to a model is masked here,
whoever asks; what it cost is written down, however it ended.
"""

from __future__ import annotations

import contextlib
import importlib.util
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from perdure import text as texts
from perdure.config import CapsConfig, ModelsConfig, PriceConfig, RoleConfig, environment
from perdure.errors import ConfigFault, MeterFault, ModelFault, ModelLate, UsageError
from perdure.models import address
from perdure.models.chat import Call, Chat, Message, Reply, Tool, Usage
from perdure.models.meter.caps import in_money, money
from perdure.models.meter.store import Asked, Meter
from perdure.models.settings import Settings

ROLES = ("resident", "miner", "helper", "summariser")
PROVIDERS = ("anthropic", "openai", "gguf")
_URLS = {"anthropic": "https://api.anthropic.com", "openai": "https://api.openai.com/v1"}
_FRAME_TOKENS = 16  # around a message: role, separators, ids

Mask = Callable[[str], str]


def _local_now() -> datetime:
    return datetime.now().astimezone()


class Roles:
    """The models of one home."""

    def __init__(
        self,
        home: Path,
        config: ModelsConfig,
        *,
        mask: Mask,
        chats: Mapping[str, Chat] | None = None,
        now: Callable[[], datetime] = _local_now,
    ) -> None:
        """mask: takes secrets out of a text. chats: your own by role, instead of those that the settings name."""
        self._config = config
        self._mask = mask
        self._chats = dict(chats or {})
        self.meter = Meter(home, now=now)

    def chat(self, role: str, *, job: str) -> Chat | None:
        """The model of a role, for one job; None where none is set. Nothing is loaded and nothing asked yet.

        Raises UsageError for a role that there is not, ConfigFault for settings that cannot be meant.
        """
        if role not in ROLES:
            raise UsageError(f"role {role!r} (known: {', '.join(ROLES)})")
        config: RoleConfig = getattr(self._config.roles, role)
        if role not in self._chats:
            if not config.provider:
                return None
            self._chats[role] = _made(role, config)
        chat = self._chats[role]
        asked, limits = Asked(job, role, chat.name), _Limits(self._price(config), self._config.caps, config)
        if limits.price is None and (cap := in_money(limits.caps)):
            raise ConfigFault(f"models.caps.{cap}: models.prices has none for {config.model or chat.name}")
        return Metered(chat, asked, limits, self.meter, self._mask)

    def state(self, role: str) -> State:
        """What the settings give a role, and what of it is missing."""
        config: RoleConfig = getattr(self._config.roles, role)
        if not config.provider:
            return State(role)
        try:
            settings_of(role, config)
            missing = "; ".join(_missing(role, config))
        except ConfigFault as error:
            missing = error.detail
        has_key = bool(environment(config.key_env)) if config.key_env else None
        return State(role, config.provider, config.model, config.key_env, has_key, self._price(config), missing)

    def cost(self, role: str, usage: Usage) -> float | None:
        """What a usage of a role's model costs; None where its price is not known."""
        return money(usage, self._price(getattr(self._config.roles, role)))

    def _price(self, config: RoleConfig) -> PriceConfig | None:
        """What the model costs, where that is known: one on this machine costs nothing."""
        return PriceConfig() if config.provider == "gguf" else self._config.prices.get(config.model)


@dataclass(frozen=True)
class State:
    """What the settings give a role."""

    role: str
    provider: str = ""  # none: no model
    model: str = ""
    key_env: str = ""
    has_key: bool | None = None  # whether the environment has it; None where none is needed
    price: PriceConfig | None = None  # None: not known
    missing: str = ""  # what must be done before it can be asked


@dataclass(frozen=True)
class _Limits:
    price: PriceConfig | None
    caps: CapsConfig
    role: RoleConfig


class Metered:
    """A model whose calls are masked, capped and written down."""

    def __init__(self, chat: Chat, asked: Asked, limits: _Limits, meter: Meter, mask: Mask) -> None:
        self._chat = chat
        self._asked = asked
        self._limits = limits
        self._meter = meter
        self._mask = mask
        self.name = chat.name

    def reply(
        self,
        messages: Sequence[Message],
        *,
        schema: dict[str, Any] | None = None,
        tools: Sequence[Tool] = (),
        on_text: Callable[[str], None] | None = None,
        timeout_s: float | None = None,
    ) -> Reply:
        """As the socket says. Raises BudgetSpent before anything is asked, MeterFault where nothing can be recorded."""
        sent = [_masked(message, self._mask) for message in messages]
        n_input = _n_tokens(sent, schema, tools)
        most = Usage(n_input, self._limits.role.max_output_tokens)
        call = self._meter.begin(self._asked, most, self._money(most), self._limits.caps)
        began_s, used, outcome = time.monotonic(), Usage(n_input), "interrupted"
        try:
            reply = self._chat.reply(sent, schema=schema, tools=tools, on_text=on_text, timeout_s=timeout_s)
            used, outcome = reply.usage, {"end": "done", "tool": "done"}.get(reply.stop, reply.stop)
            return reply
        except ModelFault as error:
            used, outcome = _cost(error, n_input), error.code
            raise
        finally:
            took_ms = (time.monotonic() - began_s) * 1000
            with contextlib.suppress(MeterFault):  # then it stays written down as it was before: at its most
                self._meter.end(call, used, self._money(used), took_ms=took_ms, outcome=outcome)

    def _money(self, usage: Usage) -> float | None:
        return money(usage, self._limits.price)


def _cost(error: ModelFault, n_input: int) -> Usage:
    """What a failed call cost: what its answer said, else the question where it may have been read, else nothing."""
    if isinstance(error.usage, Usage):
        return error.usage
    return Usage(n_input) if isinstance(error, ModelLate) else Usage()


def _masked(message: Message, mask: Mask) -> Message:
    """A message without secrets, and without half characters, which no request can carry."""
    calls = tuple(Call(call.id, call.name, _without(call.input, mask)) for call in message.calls)
    return replace(message, text=_without(message.text, mask), calls=calls)


def _without(value: Any, mask: Mask) -> Any:
    """A value of JSON with every text in it masked."""
    if isinstance(value, str):
        return mask(value.encode("utf-8", "replace").decode())
    if isinstance(value, Mapping):
        return {_without(key, mask): _without(item, mask) for key, item in value.items()}
    return [_without(item, mask) for item in value] if isinstance(value, (list, tuple)) else value


def _n_tokens(messages: Sequence[Message], schema: Mapping[str, Any] | None, tools: Sequence[Tool]) -> int:
    """About how many tokens a question has."""
    said = [message.text + "".join(str(call.input) for call in message.calls) for message in messages]
    more = [str(schema)] if schema else []
    more += [f"{tool.name} {tool.description} {tool.schema}" for tool in tools]
    return sum(texts.tokens(one) + _FRAME_TOKENS for one in [*said, *more])


# providers ------------------------------------------------------------------------------------------------------


def _made(role: str, config: RoleConfig) -> Chat:
    """The model that these settings mean. The providers' modules are small; their SDKs are loaded when asked."""
    settings = settings_of(role, config)
    if config.provider == "anthropic":
        from perdure.models.anthropic_chat import AnthropicChat

        return AnthropicChat(settings)
    if config.provider == "openai":
        from perdure.models.openai_chat import OpenAIChat

        return OpenAIChat(settings)
    from perdure.models.gguf import GgufChat

    return GgufChat(settings)


def settings_of(role: str, config: RoleConfig) -> Settings:
    """What a provider must know of a role, its key read from the environment. Raises ConfigFault."""
    where = f"models.roles.{role}"
    _check(where, config)
    key = environment(config.key_env) if config.key_env else None
    if config.key_env and not key:
        raise ConfigFault(f"{where}.key_env: the environment has no {config.key_env}")
    return Settings(
        name=f"{config.provider}:{config.model if config.provider != 'gguf' else Path(config.model).name}",
        model=config.model, url=_url(where, config, key), key=key, thinking=config.thinking, effort=config.effort,
        max_output_tokens=config.max_output_tokens, timeout_s=float(config.timeout_s),
    )  # fmt: skip


def _missing(role: str, config: RoleConfig) -> list[str]:
    """What these settings need and this machine does not have; nothing is loaded to see it."""
    file = Path(config.model).expanduser()
    library = [] if _has_library(config.provider) else [f"pip install 'perdure[{config.provider}]'"]
    gone = config.provider == "gguf" and not file.is_file()
    return library + ([f"models.roles.{role}.model: there is no file {file}"] if gone else [])


def _has_library(provider: str) -> bool:
    """Whether what asks this provider is installed; nothing is loaded to see it."""
    return importlib.util.find_spec({"gguf": "xllamacpp"}.get(provider, provider)) is not None


def _check(where: str, config: RoleConfig) -> None:
    if config.provider not in PROVIDERS:
        raise ConfigFault(f"{where}.provider = {config.provider!r} (known: {', '.join(PROVIDERS)})")
    if config.thinking not in ("", "on", "off"):
        raise ConfigFault(f"{where}.thinking = {config.thinking!r} (on, off, or nothing for the model's own way)")
    for name in ("model", "max_output_tokens", "timeout_s"):
        if not getattr(config, name):
            raise ConfigFault(f"{where}.{name} must be set for provider = {config.provider!r}")
    if config.provider != "gguf" and not config.url and not config.key_env:
        raise ConfigFault(f"{where}.key_env must be set for provider = {config.provider!r} without a url of your own")


def _url(where: str, config: RoleConfig, key: str | None) -> SplitResult:
    if config.provider == "gguf":
        return urlsplit("")
    return address.checked(config.url or _URLS[config.provider], key=key, setting=where)
