"""The model of each role, and the steps before each call: mask secrets, check the caps, record the cost.

A role without a provider has no model. This is no error: rules do its work. Every text that goes to a
model is masked here, whoever the caller is; the cost of each call is recorded, however the call ended.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from perdure.config import CapsConfig, ModelsConfig, PriceConfig, RoleConfig, read_variable
from perdure.errors import (
    BadAnswer,
    ConfigFault,
    MeterFault,
    ModelBusy,
    ModelCancelled,
    ModelFault,
    ModelLate,
    RuntimeMissing,
    UsageError,
    VariableMissing,
)
from perdure.models import settings
from perdure.models.chat import (
    Chat,
    ChatMessage,
    ChatReply,
    TokenUsage,
    ToolCall,
    ToolSpec,
    count_message_tokens,
    takes_tools,
)
from perdure.models.cost_meter import Meter, ModelCall, compute_money, find_money_cap
from perdure.models.known_models import (
    can_be_model,
    find_budget_problem,
    find_token_factor,
    find_window,
    takes_effort,
    thinks,
)
from perdure.models.settings import CLIENT_OVERHEAD_TOKENS, ModelSettings
from perdure.text import tokens

ROLES = ("resident", "miner", "helper", "summariser")
CLIENTS = tuple(CLIENT_OVERHEAD_TOKENS)
_CLIENT_ROLES = ("miner", "summariser")  # the others need tools, or an answer within a second
PROVIDERS = ("anthropic", "openai", "gguf", *CLIENTS)
_URLS = {"anthropic": "https://api.anthropic.com", "openai": "https://api.openai.com/v1"}
_FRAME_TOKENS = 16  # around a message: role, separators, ids
# In native blocks. A call's own field of such a name is masked with its message.
_SIGNATURE_FIELDS = frozenset(("signature", "thought_signature", "data", "encrypted_content"))

# Mining weighs what lasts; a summary, a merge and the target of a recall are small work, for which the providers'
# default, high, costs more than it brings. The resident answers a person: its effort is the model's own.
_DEFAULT_EFFORTS = {"miner": "medium", "helper": "low", "summariser": "low"}

Mask = Callable[[str], str]


def find_effort(role: str, config: RoleConfig) -> str:
    """Return the effort of a role's jobs: the one of its settings, else a default for models that are known to take it.

    >>> find_effort("miner", RoleConfig("anthropic", "claude-sonnet-5"))
    'medium'
    """
    is_off = config.thinking == "off" and config.provider == "openai"  # that is an effort too: "none"
    if config.effort or is_off or config.url or not takes_effort(config.provider, config.model):
        return config.effort
    return _DEFAULT_EFFORTS.get(role, "")


class Roles:
    """The models of one home."""

    def __init__(
        self,
        home: Path,
        config: ModelsConfig,
        *,
        mask: Mask,
        chats: Mapping[str, Chat] | None = None,
        now: Callable[[], datetime] = lambda: datetime.now().astimezone(),
    ) -> None:
        """Store the settings.

        mask: removes secrets from a text. chats: your own models by role, instead of those in the settings.
        """
        self._config = config
        self._mask = mask
        self._own_chats = dict(chats or {})
        self._made_chats: dict[tuple[str, str, str], Chat] = {}  # (role, model, effort) -> its model
        self.meter = Meter(home, now=now)

    def get_chat(self, role: str, *, job: str, model: str = "", effort: str = "") -> Chat | None:
        """Return the model of a role for one job, or None if none is set. Nothing is loaded and nothing is sent yet.

        model: another model of the role's provider, by the name that it has there, instead of the one in the settings.
        effort: the provider's word, instead of the one of the settings. Raises UsageError for an unknown role,
        ConfigFault for invalid settings.
        """
        if role not in ROLES:
            raise UsageError(f"role {role!r} (known: {', '.join(ROLES)})")
        config: RoleConfig = getattr(self._config.roles, role)
        if role in self._own_chats and not (model and config.provider):
            chat = self._own_chats[role]
        elif config.provider:
            config = config._replace(model=model or config.model)
            config = config._replace(effort=effort or self._config.effort.get(job) or find_effort(role, config))
            chat = self._get_made_chat(role, config)
        else:
            return None
        model_call = ModelCall(job, role, chat.name, config.effort)
        limits = _CallLimits(self._find_price(config), self._config.caps, config)
        if limits.price is None and (cap := find_money_cap(limits.caps)):
            raise ConfigFault(f"models.caps.{cap}: models.prices has no price for {config.model or chat.name}")
        return MeteredChat(chat, model_call, limits, self.meter, self._mask)

    def _get_made_chat(self, role: str, config: RoleConfig) -> Chat:
        key = (role, config.model, config.effort)
        if key not in self._made_chats:
            self._made_chats[key] = _make_chat(role, config)
        return self._made_chats[key]

    def find_model_problem(self, model: str) -> str:
        """Return why nobody can talk with a model, a role or a name at the resident's provider; "" if nothing is known.

        An endpoint of yours has names of its own: what it does not know, it refuses at the first message.
        """
        role, name = (model, "") if model in ROLES else ("resident", model)
        config: RoleConfig = getattr(self._config.roles, role)
        if role in self._own_chats and not config.provider:
            return ""
        if not config.provider:
            return f"models.roles.{role} has no provider"
        if config.provider == "gguf" and not Path(name or config.model).expanduser().is_file():
            return f"there is no file {name or config.model}"
        if name and not config.url and not can_be_model(config.provider, name):
            return f"{name!r} is neither a role ({', '.join(ROLES)}) nor like a name of a model at {config.provider}"
        return ""

    def get_state(self, role: str) -> RoleState:
        """Return the settings of a role, and what is still missing for it."""
        config: RoleConfig = getattr(self._config.roles, role)
        if not config.provider:
            return RoleState(role)
        try:
            read_model_settings(role, config)
            missing = "; ".join(_list_missing(role, config))
        except ConfigFault as error:
            missing = error.detail
        has_key = bool(read_variable(config.key_env)) if config.key_env else None
        return RoleState(
            role, config.provider, config.model, config.key_env, has_key, self._find_price(config), missing,
            find_window(config.provider, config.model, config.window_tokens), find_effort(role, config),
            tuple(_find_problems(role, config)),
        )  # fmt: skip

    def compute_cost(self, role: str, usage: TokenUsage) -> float | None:
        """Return the cost of a usage of a role's model; None if its price is unknown."""
        return compute_money(usage, self._find_price(getattr(self._config.roles, role)))

    def compute_chat_cost(self, name: str, usage: TokenUsage) -> float | None:
        """Return the cost of a usage of the model with this name ("provider:model"); None if its price is unknown.

        A model of your own, of no provider that is known here, costs what the resident's does.
        """
        provider, _, model = name.partition(":")
        is_known = provider in PROVIDERS
        config = RoleConfig(provider=provider, model=model) if is_known else self._config.roles.resident
        return compute_money(usage, self._find_price(config))

    def _find_price(self, config: RoleConfig) -> PriceConfig | None:
        """Return the model's price, None if unknown; a model on this machine, or of a subscription, costs nothing."""
        if config.provider == "gguf":
            return PriceConfig()
        return self._config.prices.get(config.model) or (PriceConfig() if config.provider in CLIENTS else None)


@dataclass(frozen=True)
class RoleState:
    """The settings of one role, and whether its model can be used."""

    role: str
    provider: str = ""  # "": no model
    model: str = ""
    key_env: str = ""
    has_key: bool | None = None  # True if the environment has the key; None if none is needed
    price: PriceConfig | None = None  # None: unknown
    missing: str = ""  # what must be done before it can be called
    window_tokens: int = 0  # of its context; 0: no model
    effort: str = ""  # of its jobs, unless models.effort names another; "": the model's default
    warnings: tuple[str, ...] = ()  # settings that do not fit together


@dataclass(frozen=True)
class _CallLimits:
    price: PriceConfig | None
    caps: CapsConfig
    role: RoleConfig


class MeteredChat:
    """A model whose calls are masked, capped and recorded."""

    def __init__(self, chat: Chat, model_call: ModelCall, limits: _CallLimits, meter: Meter, mask: Mask) -> None:
        """Store the model and its limits; nothing is sent yet."""
        self._chat = chat
        self._model_call = model_call
        self._limits = limits
        self._meter = meter
        self._mask = mask
        self._provider = chat.name.partition(":")[0]
        self.name = chat.name

    @property
    def window_tokens(self) -> int:
        """The size of the model's context window."""
        return self._chat.window_tokens

    @property
    def takes_tools(self) -> bool:
        """False if the model reads no tools."""
        return takes_tools(self._chat)

    def reply(
        self,
        messages: Sequence[ChatMessage],
        *,
        schema: dict[str, Any] | None = None,
        tools: Sequence[ToolSpec] = (),
        on_text: Callable[[str], None] | None = None,
        on_thought: Callable[[str], None] | None = None,
        timeout_s: float | None = None,
        cancel: threading.Event | None = None,
    ) -> ChatReply:
        """Return the model's answer; see `Chat.reply`.

        Raises BudgetSpent before anything is sent, and MeterFault if the cost cannot be recorded.
        """
        masked_messages = [_mask_message(message, self._mask) for message in messages]
        n_input = math.ceil(find_token_factor(self.name) * _count_tokens(masked_messages, schema, tools))
        n_input += CLIENT_OVERHEAD_TOKENS.get(self._provider, 0)
        max_usage = TokenUsage(n_input, self._limits.role.max_output_tokens)
        call_id = self._meter.begin(self._model_call, max_usage, self._compute_money(max_usage), self._limits.caps)
        began_s, usage, outcome, n_estimated = time.monotonic(), TokenUsage(n_input), "interrupted", None
        try:
            reply = self._chat.reply(
                masked_messages,
                schema=schema,
                tools=tools,
                on_text=on_text,
                on_thought=on_thought,
                timeout_s=timeout_s,
                cancel=cancel,
            )
            usage, outcome = reply.usage, {"end": "done", "tool": "done"}.get(reply.stop, reply.stop)
            n_estimated = n_input if reply.is_usage_reported else None
            return reply
        except ModelFault as error:
            error.usage = usage = _estimate_failed_usage(error, n_input)  # as it is counted
            outcome = error.code
            if isinstance(error, BadAnswer) and error.stop:
                outcome = error.stop
            if isinstance(error, ModelBusy) and isinstance(error.free_at, datetime):
                with contextlib.suppress(MeterFault):
                    self._meter.pause(self._provider, error.free_at)
            raise
        finally:
            took_ms = (time.monotonic() - began_s) * 1000
            with contextlib.suppress(MeterFault):  # then the recorded maximum of the call stays
                money = self._compute_money(usage)
                self._meter.end(call_id, usage, money, took_ms=took_ms, outcome=outcome, n_estimated_input=n_estimated)

    def _compute_money(self, usage: TokenUsage) -> float | None:
        return compute_money(usage, self._limits.price)


def _estimate_failed_usage(error: ModelFault, n_input: int) -> TokenUsage:
    """Return the usage of a failed call.

    It is the usage that the answer reported; else the question, if the model may have read it; else nothing.
    """
    if isinstance(error.usage, TokenUsage):
        return error.usage
    return TokenUsage(n_input) if isinstance(error, ModelLate | ModelCancelled) else TokenUsage()


def _mask_message(message: ChatMessage, mask: Mask) -> ChatMessage:
    """Return a message without secrets, and without half characters, which no request can carry.

    A change would break the signature of native blocks, so masked text and calls stand for blocks with a secret.
    """
    calls = tuple(ToolCall(call.id, call.name, _mask_value(call.input, mask)) for call in message.calls)
    masked_message = replace(message, text=_mask_value(message.text, mask), calls=calls)
    if message.native is None:
        return masked_message
    readable_blocks = _remove_signatures(message.native.blocks)
    is_clean = masked_message == message and _mask_value(readable_blocks, mask) == readable_blocks
    return masked_message if is_clean else replace(masked_message, native=None)


def _remove_signatures(value: Any) -> Any:
    """Return a JSON value without signatures and encrypted parts, which look like secrets to the mask."""
    if isinstance(value, Mapping):
        return {name: _remove_signatures(item) for name, item in value.items() if name not in _SIGNATURE_FIELDS}
    return [_remove_signatures(item) for item in value] if isinstance(value, (list, tuple)) else value


def _mask_value(value: Any, mask: Mask) -> Any:
    """Return a JSON value with every text in it masked."""
    if isinstance(value, str):
        return mask(value.encode("utf-8", "replace").decode())
    if isinstance(value, Mapping):
        return {_mask_value(key, mask): _mask_value(item, mask) for key, item in value.items()}
    return [_mask_value(item, mask) for item in value] if isinstance(value, (list, tuple)) else value


def _count_tokens(messages: Sequence[ChatMessage], schema: Mapping[str, Any] | None, tools: Sequence[ToolSpec]) -> int:
    """Estimate the number of tokens of a question."""
    n_message_tokens = sum(count_message_tokens(message) + _FRAME_TOKENS for message in messages)
    other_texts = [str(schema)] if schema else []
    other_texts += [f"{tool.name} {tool.description} {tool.schema}" for tool in tools]
    return n_message_tokens + sum(tokens(text) + _FRAME_TOKENS for text in other_texts)


# providers ------------------------------------------------------------------------------------------------------


def _make_chat(role: str, config: RoleConfig) -> Chat:
    """Return the model for these settings. The providers' modules are small; their SDKs are loaded at the
    first call.
    """
    settings = read_model_settings(role, config)
    if config.provider == "anthropic":
        from perdure.models.anthropic_chat import AnthropicChat

        return AnthropicChat(settings)
    if config.provider == "openai":
        from perdure.models.openai_chat import OpenAIChat

        return OpenAIChat(settings)
    if config.provider in CLIENTS:
        from perdure.models.client_chat import ClientChat

        return ClientChat(settings)
    from perdure.models.gguf import GgufChat

    return GgufChat(settings)


def read_model_settings(role: str, config: RoleConfig) -> ModelSettings:
    """Return the settings that a provider needs for a role, with the key from the environment. Raises
    ConfigFault.
    """
    setting = f"models.roles.{role}"
    check_role(setting, config)
    key = read_variable(config.key_env) if config.key_env else None
    if config.key_env and not key:
        raise VariableMissing(f"{setting}.key_env: the environment has no {config.key_env}")
    return ModelSettings(
        name=f"{config.provider}:{_name_model(config)}",
        model=config.model,
        url=_find_url(setting, config, key),
        key=key,
        thinking=config.thinking,
        effort=config.effort,
        max_output_tokens=config.max_output_tokens,
        timeout_s=float(config.timeout_s),
        program=config.program,
        window_tokens=find_window(config.provider, config.model, config.window_tokens),
    )


def _name_model(config: RoleConfig) -> str:
    return Path(config.model).name if config.provider == "gguf" else config.model or "default"


def _list_missing(role: str, config: RoleConfig) -> list[str]:
    """List the libraries and files that these settings need and this machine lacks; nothing is loaded to find
    out.
    """
    if config.provider in CLIENTS:
        from perdure.models.client_chat import find_program

        try:
            find_program(config.provider, config.program)
        except RuntimeMissing as error:
            return [error.detail]
        return []
    path = Path(config.model).expanduser()
    library = [] if _has_library(config.provider) else [f"pip install 'perdure[{config.provider}]'"]
    is_missing = config.provider == "gguf" and not path.is_file()
    return library + ([f"models.roles.{role}.model: there is no file {path}"] if is_missing else [])


def _find_problems(role: str, config: RoleConfig) -> Iterator[str]:
    """Yield what does not fit together in the settings of a role; its model answers nevertheless."""
    window_tokens = find_window(config.provider, config.model, config.window_tokens)
    if config.max_output_tokens >= window_tokens:
        yield f"max_output_tokens takes the whole window of {window_tokens:,} tokens: no question fits beside it"
    effort = find_effort(role, config)
    problem = find_budget_problem(config.max_output_tokens, effort=effort)
    if problem and thinks(config.model, thinking=config.thinking, effort=effort):
        yield problem


def _has_library(provider: str) -> bool:
    """Return True if the library for this provider is installed; nothing is loaded to find out."""
    return importlib.util.find_spec({"gguf": "xllamacpp"}.get(provider, provider)) is not None


def check_role(setting: str, config: RoleConfig) -> None:
    """Check the settings of a role. setting: their table, "models.roles.miner". Raises ConfigFault."""
    if config.provider not in PROVIDERS:
        raise ConfigFault(f"{setting}.provider = {config.provider!r} (known: {', '.join(PROVIDERS)})")
    if config.provider in CLIENTS and not setting.endswith(_CLIENT_ROLES):
        raise ConfigFault(f"{setting}.provider = {config.provider!r} (only for {' and '.join(_CLIENT_ROLES)})")
    if config.thinking not in ("", "on", "off"):
        raise ConfigFault(f"{setting}.thinking = {config.thinking!r} (on, off, or empty for the default of the model)")
    for name in ("model", "max_output_tokens", "timeout_s"):
        if not getattr(config, name) and not (name == "model" and config.provider in CLIENTS):
            raise ConfigFault(f"{setting}.{name} must be set for provider = {config.provider!r}")
    if config.provider in _URLS and not config.url and not config.key_env:
        raise ConfigFault(f"{setting}.key_env must be set for provider = {config.provider!r} unless you set a url")


def _find_url(setting: str, config: RoleConfig, key: str | None) -> SplitResult:
    if config.provider == "gguf" or (config.provider in CLIENTS and not config.url):
        return urlsplit("")
    return settings.check_url(config.url or _URLS.get(config.provider, ""), key=key, setting=setting)
