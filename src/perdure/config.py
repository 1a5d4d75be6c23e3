"""One frozen tree of settings: the only reader of config.toml.

A setting has one key, one default and one line in docs/configuration.md. An unknown setting is an
error, because a misspelt `exclude` that is silently ignored would capture folders that their owner
wanted to leave out.
"""

from __future__ import annotations

import getpass
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from perdure.environ import find_home_path, find_user_home, read_variable
from perdure.errors import ConfigFault, UsageError
from perdure.identity import check_user

__all__ = [
    "AgentsConfig",
    "ArchiveConfig",
    "AtprotoConfig",
    "CapsConfig",
    "CaptureConfig",
    "Config",
    "DeliveryConfig",
    "EmbedderConfig",
    "FloorConfig",
    "HooksConfig",
    "IdentityConfig",
    "ImagesConfig",
    "IndexConfig",
    "LimitsConfig",
    "MailConfig",
    "McpConfig",
    "McpSourceConfig",
    "McpToolConfig",
    "ModelsConfig",
    "OpenIdConfig",
    "PicturesConfig",
    "PriceConfig",
    "ProxyConfig",
    "RemoteConfig",
    "RoleConfig",
    "RolesConfig",
    "ServerConfig",
    "SessionConfig",
    "TelegramConfig",
    "find_home_path",
    "find_user_home",
    "load",
    "read_variable",
]  # fmt: skip


class CaptureConfig(NamedTuple):
    """The folders that are never captured, and the limits after which the outbox warns."""

    exclude: tuple[str, ...] = ()  # glob patterns of folders (`~` is the home folder); nothing in them is copied
    outbox_alarm_bytes: int = 256_000_000  # more than this waiting in the outbox is reported
    outbox_alarm_age_s: int = 24 * 3600  # data that waited longer than this is reported, too
    host_memories: bool = True  # also capture what hosts keep in files: their models' memories, and instructions


class HooksConfig(NamedTuple):
    """How long a client waits for a hook."""

    limit_ms: int = 1000  # a hook ends after this time, finished or not, and the client continues


class ArchiveConfig(NamedTuple):
    """How runs are stored."""

    pack_after_days: int = 30  # `perdure pack` packs a conversation that was idle for this long
    store: str = ""  # where the archive is kept besides this machine: "s3://bucket/prefix", or a folder
    store_endpoint: str = ""  # of an S3-compatible store that is not Amazon's; default: AWS_ENDPOINT_URL
    store_plain: bool = False  # allow http:// to another machine, because the network itself is private


class EmbedderConfig(NamedTuple):
    """The embedder. The default needs no network; an endpoint is contacted only if it is named here."""

    kind: str = "minilm"  # minilm, static, openai (any endpoint that speaks like it), ollama, or off
    url: str = ""  # of an endpoint, without /embeddings or /api/embed: "https://api.openai.com/v1"
    model: str = ""  # its name at the endpoint
    dimension: int = 0  # how many numbers its vectors have; an endpoint's must be set
    shorten_to: int = 0  # how many of them to keep (models trained for it: "Matryoshka"); 0 keeps all
    key_env: str = ""  # the environment variable that holds the key
    query_prefix: str = ""  # put before a query, as the model's authors recommend
    document_prefix: str = ""  # put before a stored text; a new prefix makes all vectors again
    threads: int = 2  # that minilm may use
    timeout_s: int = 30  # for one request to an endpoint


class RoleConfig(NamedTuple):
    """The model of one role, and the options of its calls. Without a provider there is no model, and rules do
    the work.
    """

    provider: str = ""  # anthropic, openai (any endpoint like it), gguf (a file), claude-cli or codex-cli (a client)
    model: str = ""  # its name at the provider; of a gguf, the path of the file
    url: str = ""  # of the endpoint; default: the provider's own
    key_env: str = ""  # the environment variable that holds the key
    thinking: str = ""  # on, off, or "" for the model's default
    effort: str = ""  # the provider's word for the effort ("low", "high"); "": a default by role (docs/models.md)
    max_output_tokens: int = 4096  # of one answer, thoughts included
    timeout_s: int = 120  # for one answer, retries included
    program: str = ""  # of claude-cli and codex-cli: path of the client's program; default: found on the PATH
    window_tokens: int = 0  # of the model's context; 0: the window known for that model, else 128,000


class RolesConfig(NamedTuple):
    """The model of each role."""

    resident: RoleConfig = RoleConfig()  # talks with the user
    miner: RoleConfig = RoleConfig()  # makes memories from conversations
    helper: RoleConfig = RoleConfig()  # small and quick: plans the queries of a recall
    summariser: RoleConfig = RoleConfig()


class PriceConfig(NamedTuple):
    """The price of a million tokens of a model, in your currency."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0  # 0: same as `input`
    cache_write: float = 0.0  # 0: same as `input`


class ImagesConfig(NamedTuple):
    """The model that makes images for the agent. Without a url there is none."""

    url: str = ""  # of an endpoint like OpenAI's, without /images/generations: "https://api.openai.com/v1"
    model: str = ""  # its name there
    key_env: str = ""  # the environment variable that holds the key
    price: float = 0.0  # of one image, in your currency; 0: unknown
    timeout_s: int = 180  # for one image


class CapsConfig(NamedTuple):
    """The maximum that models may use; 0 is no cap. Days and months are those of local time."""

    job_tokens: int = 0  # of one job in a day
    day_tokens: int = 0  # of all jobs together
    month_tokens: int = 0
    job_money: float = 0.0  # in the currency of the prices
    day_money: float = 0.0
    month_money: float = 0.0
    day_client_calls: int = 50  # calls of installed clients (claude-cli, codex-cli) in a day, all jobs together


class ModelsConfig(NamedTuple):
    """The models that Perdure uses."""

    embedder: EmbedderConfig = EmbedderConfig()
    roles: RolesConfig = RolesConfig()
    images: ImagesConfig = ImagesConfig()
    prices: Mapping[str, PriceConfig] = {}  # model -> price
    caps: CapsConfig = CapsConfig()
    effort: Mapping[str, str] = {}  # job -> the provider's word


class JobsConfig(NamedTuple):
    """The schedule of the resident home's jobs.

    Cron expressions (minute, hour, day, month, weekday) in local time; "" for never.
    """

    sweep: str = "*/5 * * * *"
    embed: str = "*/15 * * * *"
    use: str = "*/5 * * * *"
    consolidate: str = "0 4 * * *"
    pictures: str = "*/5 * * * *"
    pack: str = "30 3 * * *"
    health: str = "*/10 * * * *"
    verify: str = "45 3 * * 0"
    watchdog: str = "* * * * *"
    mine: str = "*/30 * * * *"
    recent: str = "*/10 * * * *"
    diary: str = "10 6 * * *"
    topics: str = "*/30 * * * *"
    deliver: str = "* * * * *"
    probes: str = "50 1-5 * * *"
    report: str = "30 7 * * 1"
    identities: str = "17 * * * *"


class PicturesConfig(NamedTuple):
    """How the text in pictures is read, if the extra `pictures` is installed."""

    read: bool = True  # read the text in pictures of transcripts and tool results, in the background


class MiningConfig(NamedTuple):
    """How memories are mined from conversations, if a model is set for it (`models.roles.miner`)."""

    idle_min: int = 30  # a session without messages for this long is over, and may be mined
    question_tokens: int = 12_000  # the maximum of one question
    job_batches: int = 30  # batches of ten messages that the resident home's job mines in one run


class SearchConfig(NamedTuple):
    """How search and recall rank."""

    vector_weight: float = 0.5  # of likeness in meaning, from 0 to 1; words have the rest


INDEX_ENGINES = ("sqlite", "postgres")  # values of `index.engine`


class IndexConfig(NamedTuple):
    """Where the index is: in a file of this home, or in a database that many machines share."""

    engine: str = "sqlite"  # sqlite or postgres
    address: str = ""  # of Postgres: "postgresql://perdure@db.example/perdure", without a password
    password_env: str = ""  # the environment variable that holds the password
    schema: str = "perdure"  # the beginning of the names of its schemas; each home has its own


class LimitsConfig(NamedTuple):
    """From where on recall speaks, judged with the vectors of one model, or with words alone. 0: the built-in value."""

    relevance: float = 0.0  # of the best match, as `perdure recall --explain` shows it
    coverage: float = 0.0  # share of the message's words in one text that lets recall speak whatever the relevance is


ASK_HOST = ("off", "start", "compact", "all")  # values of `live.ask_host`


class LiveConfig(NamedTuple):
    """The blocks that Perdure adds to a session while it runs."""

    recall: bool = True  # add recalled memories and turns to each message that a person sends
    floor: bool = True  # put the floor (profile, notes, core, cards, …) at the start of each session
    repeat: str = "session"  # a cue is not repeated within a "session"; "turn" allows repetition
    subagents: bool = False  # recall for the prompts of sub-agents, too
    machine_turns: bool = False  # recall for messages that a program sends in a person's place, too
    notice: bool = True  # tell the person in one line how much was recalled, where the client shows such lines
    shadow: bool = False  # record the recall that a message would get, and give the session nothing
    tool_facts: bool = True  # tell one fact at a tool call that is about to repeat a mistake, or changes a decided file
    remind_every: int = 0  # at every n-th message of a person, say that things can be remembered; 0 for never
    ask_host: str = "off"  # ask the client's own model what to keep: off, at a "start", after a "compact"ion, or "all"
    limits: Mapping[str, LimitsConfig] = {}  # by model


class MemoriesConfig(NamedTuple):
    """The sources of memories."""

    stated: bool = True  # keep what a person tells the agent to keep in a session, without a model
    review: bool = False  # hold what rules, the miner and agents draft until you accept it in `perdure memories review`


class McpToolConfig(NamedTuple):
    """A tool of an MCP server whose answer is a document."""

    name: str = ""
    arguments: Mapping[str, Any] = {}


class McpSourceConfig(NamedTuple):
    """An MCP server whose documents `perdure import --from mcp` takes in."""

    command: tuple[str, ...] = ()  # the program and its arguments, for a server on standard input and output
    url: str = ""  # of a server over HTTP, instead of a command
    environment: tuple[str, ...] = ()  # names of environment variables that the command gets, besides PATH and HOME
    key_env: str = ""  # the environment variable that holds the secret for `url` (Authorization: Bearer)
    resources: bool = True  # take its resources
    tools: tuple[McpToolConfig, ...] = ()  # and these tools' answers
    project: str = ""  # the folder to whose project the documents belong; default: all projects
    timeout_s: float = 10.0  # for one request
    limit_s: float = 120.0  # for all of them


class McpConfig(NamedTuple):
    """The MCP servers that are sources of this home."""

    sources: Mapping[str, McpSourceConfig] = {}


class RemoteConfig(NamedTuple):
    """The remote home of a thin machine. `perdure join` writes it."""

    url: str = ""  # "https://home.example:8443"; without it, this machine keeps its own home
    ca: str = ""  # path of your own certificate authority (PEM); default: the system's
    plain: bool = False  # allow http:// to other machines, because the network itself is private


class ServerConfig(NamedTuple):
    """How this home serves other machines and other users."""

    http: str = ""  # where the resident home answers over HTTP, e.g. "127.0.0.1:8787"; default: nowhere
    tls_certificate: str = ""  # files in PEM; needed for an address that other machines can reach
    tls_key: str = ""
    plain: bool = False  # allow such an address without TLS, because the network itself is private
    admins: tuple[str, ...] = ()  # users, or DIDs of users, who may administer the whole home; its own user always may
    names: tuple[str, ...] = ()  # names of this server besides those of its certificate and its machine
    requests_per_minute: int = 600  # of each machine
    remote_agent: bool = False  # let your other machines talk with the agent, whose tools act on this one


class AtprotoConfig(NamedTuple):
    """People who are known by a DID of the AT Protocol. Without a directory this home asks no such server."""

    directory: str = ""  # of DIDs: "https://plc.directory"
    server: str = ""  # a server that finds the DID of a handle; default: the web site of the handle


class OpenIdConfig(NamedTuple):
    """The OpenID provider by which people sign in on the page. Without an issuer there is none."""

    issuer: str = ""  # "https://login.example.com", as its tokens name it
    client_id: str = ""  # of this home there
    secret_env: str = ""  # the environment variable with the secret of this client; default: a client without one
    name: str = ""  # on the page: "Sign in with NAME"; default: the host of the issuer
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    address: str = ""  # of this home in a browser: "https://home.example"; default: the one that the browser asked for
    session_h: int = 12  # a session on the page ends after so many hours


class IdentityConfig(NamedTuple):
    """The servers elsewhere that prove who somebody is. They give nobody a right in this home."""

    atproto: AtprotoConfig = AtprotoConfig()
    openid: OpenIdConfig = OpenIdConfig()
    private: tuple[str, ...] = ()  # hosts that may have private addresses, and may be asked over http://
    ca: str = ""  # file (PEM) of a certificate authority of your own; default: the system's
    timeout_s: int = 10  # for one request


class ProxyConfig(NamedTuple):
    """The proxy, which gives memory to clients that take a base URL."""

    listen: str = ""  # where `perdure serve` also answers as a proxy, e.g. "127.0.0.1:8788"; default: nowhere
    limit_ms: int = 100  # a request that waited so long for recall goes on without it
    capture: bool = True  # capture both sides of what goes through; never of a client that has hooks
    upstreams: Mapping[str, Any] = {}  # name -> address


class DeliveryConfig(NamedTuple):
    """A target to which results are delivered. Each kind reads the settings that are named for it."""

    kind: str = ""  # file, webhook, mail or telegram
    folder: str = ""  # file: nothing is written outside of it
    file: str = ""  # file: append to this file in the folder; default: a new file for each message
    url: str = ""  # webhook: where it is sent; telegram: of another server of the Bot API
    secret_env: str = ""  # webhook: the environment variable with the key of the signature
    token_env: str = ""  # webhook: of a bearer token; telegram: of the token of the bot
    plain: bool = False  # webhook, mail: allow another machine without TLS, because the network itself is private
    host: str = ""  # mail: the server that takes it
    port: int = 587  # mail
    tls: str = "starttls"  # mail: starttls, tls (from the first byte, mostly port 465) or off
    user: str = ""  # mail: the name to log in with; default: no login
    password_env: str = ""  # mail: the environment variable with the password
    sender: str = ""  # mail: the address that it comes from
    recipients: tuple[str, ...] = ()  # mail
    chat: str = ""  # telegram: the number of the chat, or @name of a channel
    ca: str = ""  # webhook, mail: file (PEM) of a certificate authority of your own; default: the system's
    tries: int = 8  # then it becomes a dead letter; with 8 the last try comes after about 12 hours
    timeout_s: int = 30  # for one request or one answer of the server


class TelegramConfig(NamedTuple):
    """The bot through which people talk with the agent of this home in Telegram. Without a token there is none."""

    token_env: str = ""  # the environment variable with the token of the bot
    users: tuple[str, ...] = ()  # numbers of the people who may talk with it; all others get nothing
    groups: tuple[str, ...] = ()  # numbers of groups in which these people may, too
    folder: str = ""  # where the agent works; default: ~/perdure-telegram
    mode: str = ""  # plan, ask, edits or yolo; default: that of agent.yaml
    answer_s: int = 900  # a question to the person waits so long for an answer
    url: str = ""  # of a Bot API server of your own


class MailConfig(NamedTuple):
    """The address at which the agent of this home answers mail. Without an address there is none."""

    address: str = ""  # of the agent: its answers come from there
    senders: tuple[str, ...] = ()  # addresses of the people who may; all others get nothing
    authserv_id: str = ""  # the name of the receiving server in the Authentication-Results that it writes
    unauthenticated: bool = False  # answer mails whose sender no server confirms, too; never the owner's words
    secret_env: str = ""  # the environment variable with the word that makes a mail the owner's words
    incoming: str = ""  # a folder in which mails arrive: a Maildir, or files that end in .eml
    imap_host: str = ""  # the server on which mails arrive
    imap_port: int = 993
    imap_tls: str = "tls"  # tls (from the first byte), starttls or off
    imap_folder: str = "INBOX"
    smtp_host: str = ""  # the server that takes the answers
    smtp_port: int = 587
    smtp_tls: str = "starttls"  # starttls, tls (from the first byte, mostly port 465) or off
    user: str = ""  # the name to log in with at both servers; default: no login
    password_env: str = ""  # the environment variable with the password
    ca: str = ""  # file (PEM) of a certificate authority of your own; default: the system's
    plain: bool = False  # allow another machine without TLS, because the network itself is private
    folder: str = ""  # where the agent works; default: ~/perdure-mail
    mode: str = ""  # what runs unasked for the owner's words: ask, edits or yolo; default: that of agent.yaml
    per_hour: int = 20  # mails of one sender that are answered in an hour; the others wait
    poll_s: int = 60  # a server that does not tell of new mail is asked so often
    timeout_s: int = 30  # for one answer of a server


class SessionConfig(NamedTuple):
    """How a session of Perdure's own stays within the window of its model. In a small window, less of each."""

    warn_percent: int = 70  # of the window: from here on old tool output and images are left out
    archive_percent: int = 85  # of the window: from here on the middle of the session becomes a summary
    reserve_tokens: int = 16_384  # of the window, kept for the answer
    head_tokens: int = 4_000  # of the first exchange, which always stays as it was
    tail_tokens: int = 20_000  # of the newest messages, which stay as they were
    tail_rounds: int = 20  # at most so many of the newest rounds
    summary_tokens: int = 6_000  # of the summary of the middle
    recall_tokens: int = 2_000  # recalled at a compaction, into the room that it made
    clip_chars: int = 2_000  # of each tool result that the summariser reads


class AgentsConfig(NamedTuple):
    """How runs of agents in the background are carried out."""

    workers: int = 4  # runs at once, of each depth: one that waits for its sub-agents holds up none of them; 0: none
    max_depth: int = 2  # 1: sub-agents have no sub-agents of their own; 0: there are none
    max_waiting: int = 100  # runs that may wait; more are refused
    max_s: int = 1800  # seconds for a run whose recipe says nothing


class WorkersConfig(NamedTuple):
    """Whether processes of their own do the work in the background. Needs the index in Postgres: docs/operating.md."""

    enabled: bool = False  # `perdure serve` only answers, and `perdure worker` works, as many of both as you start
    max_waiting: int = 5_000  # runs of one user that may wait for the index; more are refused, and sent again later


class FloorConfig(NamedTuple):
    """The maximum number of tokens of each layer of the floor, and the location of this machine."""

    system_tokens: int = 8000
    profile_tokens: int = 4000
    core_tokens: int = 4000
    notes_tokens: int = 4000
    insights_tokens: int = 600
    cards_tokens: int = 20_000
    recent_tokens: int = 300  # of the latest conversations of the session's project
    recent_days: int = 7  # older conversations are not in it; 0 for none
    overall: bool = False  # show recent.md and the diary of all projects in the sessions of every project
    overall_tokens: int = 4000  # target length of recent.md; it is rebuilt when it is a fifth longer
    diary_tokens: int = 4000  # of each of its two pages
    note_stated: bool = True  # a statement that every session must know becomes a line of notes.md
    question_tokens: int = 24_000  # the maximum of one question when recent.md or a diary page is written
    guard: bool = False  # a change of the system prompt, agent.yaml or a skill in its file waits for your approval
    place: str = ""  # location of this machine, as models read it: "Lisbon, at home"


class Config(NamedTuple):
    """All settings, with their defaults."""

    user: str = ""  # owner of everything this home captures; default: the operating-system user
    machine: str = ""  # name of this device; default: its host name
    agent: str = "default"  # whose mind the runtimes on this machine are
    capture: CaptureConfig = CaptureConfig()
    hooks: HooksConfig = HooksConfig()
    archive: ArchiveConfig = ArchiveConfig()
    models: ModelsConfig = ModelsConfig()
    index: IndexConfig = IndexConfig()  # type: ignore[assignment]  # not the method of a tuple
    search: SearchConfig = SearchConfig()
    live: LiveConfig = LiveConfig()
    jobs: JobsConfig = JobsConfig()
    pictures: PicturesConfig = PicturesConfig()
    mining: MiningConfig = MiningConfig()
    memories: MemoriesConfig = MemoriesConfig()
    floor: FloorConfig = FloorConfig()
    mcp: McpConfig = McpConfig()
    remote: RemoteConfig = RemoteConfig()
    server: ServerConfig = ServerConfig()
    identity: IdentityConfig = IdentityConfig()
    proxy: ProxyConfig = ProxyConfig()
    delivery: Mapping[str, DeliveryConfig] = {}  # by name
    telegram: TelegramConfig = TelegramConfig()
    mail: MailConfig = MailConfig()
    session: SessionConfig = SessionConfig()
    agents: AgentsConfig = AgentsConfig()
    workers: WorkersConfig = WorkersConfig()

    @property
    def admins(self) -> frozenset[str]:
        """The users who may administer the whole home."""
        return frozenset((self.user, *self.server.admins))


def load(home: Path) -> Config:
    """Return the settings of a home: its config.toml over the defaults. Raises ConfigFault, which names the
    setting.
    """
    config: Config = _build_settings(Config, _read_table(home / "config.toml"), prefix="")
    if config.live.repeat not in ("session", "turn"):
        raise ConfigFault(f"live.repeat = {config.live.repeat!r} (session or turn)")
    if config.search.vector_weight > 1:
        raise ConfigFault(f"search.vector_weight = {config.search.vector_weight!r} (from 0 to 1)")
    _check_index(config.index)
    if config.workers.enabled and config.index.engine != "postgres":
        raise ConfigFault("workers.enabled = true needs index.engine = 'postgres', where their queue is")
    if config.live.ask_host not in ASK_HOST:
        raise ConfigFault(f"live.ask_host = {config.live.ask_host!r} ({', '.join(ASK_HOST)})")
    return _add_identity(config)


def _check_index(index: IndexConfig) -> None:
    """Raise ConfigFault for an index that cannot be opened as it is set."""
    if index.engine not in INDEX_ENGINES:
        raise ConfigFault(f"index.engine = {index.engine!r} ({' or '.join(INDEX_ENGINES)})")
    if index.engine == "postgres":
        scheme, _, rest = index.address.partition("://")
        if scheme not in ("postgresql", "postgres"):
            raise ConfigFault(f"index.address = {index.address!r} (postgresql://user@host/database)")
        if ":" in rest.partition("/")[0].rpartition("@")[0] or "password=" in rest:
            raise ConfigFault("index.address holds a password: name its environment variable in index.password_env")
        if not (index.schema.isascii() and index.schema.isidentifier() and index.schema.islower()):
            raise ConfigFault(f"index.schema = {index.schema!r} (small letters, digits and _)")


def check_text(toml_text: str) -> None:
    """Check the text of a config.toml. Raises ConfigFault, which names the setting."""
    _build_settings(Config, _parse_table(toml_text, "config.toml"), prefix="")


def _read_table(path: Path) -> dict[str, Any]:
    """Read a file of settings; empty if there is no file. Raises ConfigFault, and UsageError if the home is a file."""
    try:
        toml_text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except NotADirectoryError as error:
        raise UsageError(f"{path.parent} is not a folder") from error
    except (UnicodeDecodeError, OSError) as error:
        raise ConfigFault(f"{path}: {error}") from error
    return _parse_table(toml_text, str(path))


def _parse_table(toml_text: str, name: str) -> dict[str, Any]:
    import tomllib  # 6 ms, paid only if there is such a file

    try:
        return tomllib.loads(toml_text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigFault(f"{name}: {error}") from error


def _add_identity(config: Config) -> Config:
    """Fill in user and machine from the operating system if config.toml does not set them."""
    try:
        user = check_user(config.user) if config.user else _get_system_user()
    except UsageError as error:
        raise ConfigFault(f"user = {error.detail}") from error
    machine = config.machine or os.uname().nodename.split(".")[0] or "machine"
    return config._replace(user=user, machine=machine)


def _get_system_user() -> str:
    """Return the login name; a number if the system knows none (a container's user, for example)."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


_ITEM_CLASSES: dict[tuple[type[Any], str], type[Any]] = {  # of what a table or list of settings holds
    (ModelsConfig, "prices"): PriceConfig,
    (ModelsConfig, "effort"): str,
    (LiveConfig, "limits"): LimitsConfig,
    (McpConfig, "sources"): McpSourceConfig,
    (McpSourceConfig, "tools"): McpToolConfig,
    (Config, "delivery"): DeliveryConfig,
}
_FREE_TABLES = ((McpToolConfig, "arguments"), (ProxyConfig, "upstreams"))  # that may hold anything


def _build_settings(settings_class: type[Any], table: Mapping[str, Any], *, prefix: str) -> Any:
    """Build settings from a TOML table; nested tables become nested settings."""
    names = settings_class._fields
    unknown = sorted(set(table) - set(names))
    if unknown:
        raise ConfigFault(f"{prefix}{unknown[0]} (known here: {', '.join(sorted(names))})")
    values: dict[str, Any] = {}
    for name, value in table.items():
        place, setting = (settings_class, name), f"{prefix}{name}"
        default, item_class = settings_class._field_defaults[name], _ITEM_CLASSES.get(place)
        if item_class and isinstance(value, dict) and isinstance(default, dict):
            values[name] = {
                key: _to_setting(item_class(), item, setting=f"{setting}.{key}") for key, item in value.items()
            }
        elif item_class and isinstance(value, list) and isinstance(default, tuple):
            values[name] = tuple(
                _to_setting(item_class(), item, setting=f"{setting}[{number}]") for number, item in enumerate(value)
            )
        elif place in _FREE_TABLES and isinstance(value, dict):
            values[name] = value
        else:
            values[name] = _to_setting(default, value, setting=setting)
    return settings_class(**values)


def _to_setting(default: Any, value: Any, *, setting: str) -> Any:
    """Return the value of one setting in the type of its default."""
    if isinstance(value, dict) and hasattr(default, "_fields"):
        return _build_settings(type(default), value, prefix=f"{setting}.")
    if isinstance(default, tuple) and isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    if type(default) is float and type(value) is int:
        value = float(value)
    if type(value) is type(default) and not (isinstance(value, (int, float)) and not 0 <= value < math.inf):
        return value
    raise ConfigFault(f"{setting} = {value!r} (expected something like {default!r})")
