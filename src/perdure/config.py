"""One frozen tree of settings: the only reader of config.toml.

A setting has one place, one default and one line in docs/configuration.md. An unknown setting is an error,
because a misspelt `exclude` that is silently ignored would capture what its owner wanted left alone.
"""

from __future__ import annotations

import getpass
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from perdure.environ import environment, home_path, user_home
from perdure.errors import ConfigFault, UsageError
from perdure.identity import check_user

__all__ = [
    "ArchiveConfig", "CapsConfig", "CaptureConfig", "Config", "EmbedderConfig", "FloorConfig",
    "HooksConfig", "ModelsConfig",
    "PriceConfig", "RemoteConfig", "RoleConfig", "RolesConfig", "ServerConfig", "environment", "home_path", "load",
    "user_home",
]  # fmt: skip


@dataclass(frozen=True)
class CaptureConfig:
    """What is never captured, and when the outbox calls for help."""

    exclude: tuple[str, ...] = ()  # glob patterns of folders (`~` is the home folder); nothing of them is copied
    outbox_alarm_bytes: int = 256_000_000  # more than this waiting in the outbox is reported
    outbox_alarm_age_s: int = 24 * 3600  # so is anything that waited longer


@dataclass(frozen=True)
class HooksConfig:
    """How long a client waits for us."""

    limit_ms: int = 1000  # a hook ends after so long, whatever it was doing, and the client goes on


@dataclass(frozen=True)
class ArchiveConfig:
    """How runs are kept."""

    pack_after_days: int = 30  # a conversation idle for so long is packed by `perdure pack`


@dataclass(frozen=True)
class EmbedderConfig:
    """What turns texts into vectors. The default needs no network; the endpoints are asked only when named here."""

    kind: str = "minilm"  # minilm, static, openai (any endpoint that speaks like it), ollama, or off
    url: str = ""  # of an endpoint, without /embeddings or /api/embed: "https://api.openai.com/v1"
    model: str = ""  # its name at the endpoint
    dimension: int = 0  # how many numbers its vectors have; an endpoint's must be set
    shorten_to: int = 0  # keep so many of them (models trained for it: "Matryoshka"); 0 keeps all
    key_env: str = ""  # the environment variable that holds the key
    query_prefix: str = ""  # put before what is searched for, as the model's makers say
    document_prefix: str = ""  # put before what is kept; another one makes all vectors anew
    threads: int = 2  # that minilm may use
    timeout_s: int = 30  # for one request to an endpoint


@dataclass(frozen=True)
class RoleConfig:
    """The model of one role, and how it is asked. Without a provider there is none, and rules do its work."""

    provider: str = ""  # anthropic, openai (any endpoint that speaks like it) or gguf (a file on this machine)
    model: str = ""  # its name at the provider; of a gguf, the path of the file
    url: str = ""  # of the endpoint; the provider's own unless set
    key_env: str = ""  # the environment variable that holds the key
    thinking: str = ""  # on, off, or the model's own way
    effort: str = ""  # the provider's word for how hard to try ("low", "high"), or the model's own way
    max_output_tokens: int = 4096  # of one answer, thoughts included
    timeout_s: int = 120  # for one answer, retries included


@dataclass(frozen=True)
class RolesConfig:
    """Which model serves which job."""

    resident: RoleConfig = field(default_factory=RoleConfig)  # talks
    miner: RoleConfig = field(default_factory=RoleConfig)  # makes memories of what was said
    helper: RoleConfig = field(default_factory=RoleConfig)  # small and quick: plans what a recall looks for
    summariser: RoleConfig = field(default_factory=RoleConfig)


@dataclass(frozen=True)
class PriceConfig:
    """What a million tokens of a model cost, in your currency."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0  # 0: as `input`
    cache_write: float = 0.0  # 0: as `input`


@dataclass(frozen=True)
class CapsConfig:
    """The most that models may take; 0 is no cap. Days and months are those of local time."""

    job_tokens: int = 0  # of one job in a day
    day_tokens: int = 0  # of all jobs together
    month_tokens: int = 0
    job_money: float = 0.0  # in the currency of the prices
    day_money: float = 0.0
    month_money: float = 0.0


@dataclass(frozen=True)
class ModelsConfig:
    """The models that Perdure asks."""

    embedder: EmbedderConfig = field(default_factory=EmbedderConfig)
    roles: RolesConfig = field(default_factory=RolesConfig)
    prices: Mapping[str, PriceConfig] = field(default_factory=dict, metadata={"each": PriceConfig})  # model -> price
    caps: CapsConfig = field(default_factory=CapsConfig)


@dataclass(frozen=True)
class JobsConfig:
    """When the resident home does what: cron expressions (minute, hour, day, month, weekday) in local time, "" for
    never.
    """

    sweep: str = "*/5 * * * *"
    embed: str = "*/15 * * * *"
    use: str = "*/5 * * * *"
    consolidate: str = "0 4 * * *"
    pack: str = "30 3 * * *"
    health: str = "*/10 * * * *"
    verify: str = "45 3 * * 0"
    watchdog: str = "* * * * *"
    mine: str = "*/30 * * * *"
    recent: str = "*/10 * * * *"
    diary: str = "10 6 * * *"


@dataclass(frozen=True)
class MiningConfig:
    """How memories are made of conversations, where a model is set for it (`models.roles.miner`)."""

    idle_min: int = 30  # a session in which nothing was said for so long is over, and may be mined
    question_tokens: int = 12_000  # the most that one question has
    job_batches: int = 30  # of ten messages, that the job of the resident home mines in one run


@dataclass(frozen=True)
class LiveConfig:
    """What goes into a session while it runs."""

    recall: bool = True  # put what matters beside each message that a person sends
    floor: bool = True  # put what is always at hand (profile, notes, core, cards, …) at the start of each session
    repeat: str = "session"  # what was recalled is not said again within a "session"; "turn" says it again
    subagents: bool = False  # recall for what sub-agents are told, too
    machine_turns: bool = False  # recall for what a program sends in a person's place, too
    remind_every: int = 0  # at one in so many of a person's messages, say that things can be remembered; 0 for never


@dataclass(frozen=True)
class MemoriesConfig:
    """What becomes a memory."""

    stated: bool = True  # what a person plainly states in a session is kept, by rules, without a model


@dataclass(frozen=True)
class RemoteConfig:
    """The home that this machine captures to and asks, where it keeps none itself. `perdure join` writes it."""

    url: str = ""  # "https://home.example:8443"; this machine keeps its own home unless set
    ca: str = ""  # path of a certificate authority of your own (PEM); the system's unless set
    plain: bool = False  # let http:// reach beyond this machine, because the network itself is private


@dataclass(frozen=True)
class ServerConfig:
    """How this home serves other machines and other users."""

    http: str = ""  # where the resident home answers over HTTP, e.g. "127.0.0.1:8787"; nowhere unless set
    tls_certificate: str = ""  # files in PEM; needed for an address that other machines can reach
    tls_key: str = ""
    plain: bool = False  # such an address without TLS: the network itself is private
    admins: tuple[str, ...] = ()  # users who may see to the whole home; its own user always may
    requests_per_minute: int = 600  # of each machine


@dataclass(frozen=True)
class FloorConfig:
    """The most tokens that each layer of the floor has, and where this machine stands."""

    system_tokens: int = 8000
    profile_tokens: int = 4000
    core_tokens: int = 4000
    notes_tokens: int = 4000
    insights_tokens: int = 600
    cards_tokens: int = 20_000
    recent_tokens: int = 4000  # what it is written for; it is rebuilt when a fifth more
    diary_tokens: int = 4000  # of each of its two pages
    note_stated: bool = True  # what a person states and is to be known in every session becomes a line of notes.md
    question_tokens: int = 24_000  # the most that one question has, when recent.md or a page of the diary is written
    place: str = ""  # where this machine is, as a model is told it: "Lisbon, at home"


@dataclass(frozen=True)
class Config:
    """Everything that can be set, with its default."""

    user: str = ""  # owner of what this home captures; the operating-system user unless set
    machine: str = ""  # name of this device; its host name unless set
    agent: str = "default"  # whose mind the runtimes on this machine are
    capture: CaptureConfig = field(default_factory=CaptureConfig)
    hooks: HooksConfig = field(default_factory=HooksConfig)
    archive: ArchiveConfig = field(default_factory=ArchiveConfig)
    models: ModelsConfig = field(default_factory=ModelsConfig)
    live: LiveConfig = field(default_factory=LiveConfig)
    jobs: JobsConfig = field(default_factory=JobsConfig)
    mining: MiningConfig = field(default_factory=MiningConfig)
    memories: MemoriesConfig = field(default_factory=MemoriesConfig)
    floor: FloorConfig = field(default_factory=FloorConfig)
    remote: RemoteConfig = field(default_factory=RemoteConfig)
    server: ServerConfig = field(default_factory=ServerConfig)

    @property
    def admins(self) -> frozenset[str]:
        """The users who may see to the whole home."""
        return frozenset((self.user, *self.server.admins))


def load(home: Path) -> Config:
    """The settings of a home: its config.toml over the defaults. Raises ConfigFault naming the setting."""
    config: Config = _build(Config, _table(home / "config.toml"), where="")
    if config.live.repeat not in ("session", "turn"):
        raise ConfigFault(f"live.repeat = {config.live.repeat!r} (session or turn)")
    return _with_identity(config)


def _table(path: Path) -> dict[str, Any]:
    """What a file of settings says; nothing when there is none. Raises ConfigFault."""
    try:
        said = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (UnicodeDecodeError, OSError) as error:
        raise ConfigFault(f"{path}: {error}") from error
    import tomllib  # 6 ms that only those pay who have such a file

    try:
        return tomllib.loads(said)
    except tomllib.TOMLDecodeError as error:
        raise ConfigFault(f"{path}: {error}") from error


def _with_identity(config: Config) -> Config:
    """Fill in who and where we are from the operating system where config.toml is silent."""
    try:
        user = check_user(config.user) if config.user else _system_user()
    except UsageError as error:
        raise ConfigFault(f"user = {error.detail}") from error
    machine = config.machine or os.uname().nodename.split(".")[0] or "machine"
    return replace(config, user=user, machine=machine)


def _system_user() -> str:
    """The login name; a number where the system knows none (a container's user, say)."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _build(shape: type[Any], table: Mapping[str, Any], *, where: str) -> Any:
    """A dataclass from a TOML table; nested tables become nested dataclasses."""
    known = {f.name: f for f in fields(shape)}
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise ConfigFault(f"{where}{unknown[0]} (known here: {', '.join(sorted(known))})")
    values = {}
    for name, value in table.items():
        each = known[name].metadata.get("each")
        if each and isinstance(value, dict):
            values[name] = {key: _value(each(), item, where=f"{where}{name}.{key}") for key, item in value.items()}
        else:
            values[name] = _value(getattr(shape(), name), value, where=f"{where}{name}")
    return shape(**values)


def _value(default: Any, value: Any, *, where: str) -> Any:
    """The value of one setting in the type of its default."""
    if isinstance(value, dict) and is_dataclass(default):
        return _build(type(default), value, where=f"{where}.")
    if isinstance(default, tuple) and isinstance(value, list) and all(isinstance(v, str) for v in value):
        return tuple(value)
    if type(default) is float and type(value) is int:
        value = float(value)
    if type(value) is type(default) and not (isinstance(value, (int, float)) and not 0 <= value < math.inf):
        return value
    raise ConfigFault(f"{where} = {value!r} (expected something like {default!r})")
