"""Every error that Perdure raises, in one tree. The class docstring is the message and says what to do.

PerdureError
├── UsageError                 the call was wrong; exit status 2
│   ├── EditRefused
│   ├── JobFault
│   └── ToolError
├── NotFound                   not found, or not visible to this principal; exit status 4
│   ├── SessionMissing
│   ├── AgentRunMissing
│   ├── MemoryMissing
│   ├── FloorMissing
│   ├── ProposalMissing
│   ├── UserMissing
│   ├── MachineMissing
│   ├── GrantMissing
│   ├── TeamMissing
│   ├── TargetMissing
│   └── DeliveryMissing
├── HomeFault                  the home cannot be used as it is; exit status 3
│   ├── HomeMissing
│   ├── HomeNotPrivate
│   ├── CredentialFault
│   ├── NewerFormat
│   ├── UnsupportedPlatform
│   ├── ThinHome
│   ├── ClientOnly
│   ├── NetworkFileSystem
│   └── ReadOnlyHome
├── SystemFault                the operating system refused a path that the call names
├── PackageMissing             an optional part is not installed
├── ConfigFault                a setting in config.toml is not valid
│   ├── VariableMissing
│   ├── DefinitionFault
│   ├── TokenRefused
│   └── ModelMissing
├── ArchiveFault               the archive is damaged, or the write would damage it; nothing was written
│   ├── DiskFull
│   ├── BackupFault
│   └── DamagedRun
├── StoreFault                 the store of the archive cannot be used; what is new waits on this machine
│   ├── StoreAway
│   ├── StoreRefused
│   ├── DamagedStore
│   └── NewerStore
├── IndexFault                 the cache is missing or damaged; the archive still answers
│   ├── IndexMissing
│   ├── IndexDamaged
│   ├── IndexUnreachable
│   └── VectorsMissing
├── ModelFault                 a model gave no answer; keyword search goes on without it
│   ├── RuntimeMissing
│   ├── WeightsMissing
│   ├── WeightsDamaged
│   ├── ModelFileMissing
│   ├── ModelUnreachable
│   │   ├── ModelBusy
│   │   └── ModelLate
│   ├── ModelRefused
│   ├── BadAnswer
│   ├── ModelCancelled
│   ├── ContextTooLarge
│   ├── TurnBudgetSpent
│   ├── BudgetSpent
│   ├── MeterFault
│   │   └── MeterFull
│   ├── TextRefused
│   ├── PictureUnreadable
│   ├── VectorRefused
│   ├── ModelNonsense
│   └── DimensionMismatch
├── RemoteFault                the remote home cannot be used; captures wait in the outbox
│   ├── RemoteAway
│   │   ├── RemoteNotNow
│   │   └── CertificateRefused
│   ├── RemoteRefused
│   │   ├── CredentialMissing
│   │   └── SecretRefused
│   ├── RemoteNonsense
│   ├── JoinFault
│   └── LineRefused
├── FormatFault                bytes of no known format, or damaged ones
├── SourceAway                 an MCP server that is a source gave no answer; nothing of it was stored
├── SyncFault                  two homes could not exchange all data; the next sync continues
│   └── OtherVersion
├── ClientFault                a client's settings are not what they are expected to be; nothing was changed
├── ServiceFault               the resident home does not start, stop or work as it should
├── DeliveryFault              a target did not take a message; it is tried again
│   ├── DeliveryRefused
│   └── MailAway
├── IdentityFault              an identity server cannot be used as it is; nothing was changed
│   ├── IdentityServerAway
│   └── IdentityRefused
├── TierFault                  a tier of a workflow gave no answer; what was to be written waits
│   └── TierStartFault
├── NothingToExport            no memory has a path below the given one; nothing was written
└── Busy                       another process holds the lock
    ├── AlreadyServing
    ├── AgentQueueFull
    ├── BotTaken
    ├── MailTaken
    └── SessionHeld
"""

from __future__ import annotations


class PerdureError(Exception):
    """Something went wrong in Perdure."""

    exit_code = 1
    advises = True  # True: the advice follows the detail; False: the detail itself says it

    def __init__(self, detail: str = "") -> None:
        """`detail` names the thing (a path, an id); the class docstring tells what to do about it."""
        self.detail = detail
        doc = " ".join((type(self).__doc__ or "").split())
        super().__init__(f"{detail}: {doc}" if detail and self.advises else detail or doc)

    @property
    def code(self) -> str:
        """A stable name for machines, e.g. `network-file-system`."""
        name = type(self).__name__
        return "".join("-" + c.lower() if c.isupper() else c for c in name).lstrip("-")


class UsageError(PerdureError):
    """The command or its options are not valid. See `perdure --help`."""

    exit_code = 2
    advises = False


class EditRefused(UsageError):
    """This edit of the floor is not allowed. Nothing was changed."""

    advises = True


class JobFault(UsageError):
    """The page of a job cannot be understood. Correct the named key; docs/jobs.md lists them all."""


class ToolError(UsageError):
    """A tool refused a call; the detail is the text for the model. Nothing was changed."""


class NotFound(PerdureError):
    """Not found, or not visible to you. `perdure search` and `perdure tree` show ids."""

    exit_code = 4


class EmbedderMissing(NotFound):
    """There are no vectors without an embedder. `perdure doctor` says which one is set and what it lacks."""


class RecallMissing(NotFound):
    """A recall is recorded when it puts something beside a message: in a client that `perdure install` set up, or in
    `perdure chat`.
    """


class JobMissing(NotFound):
    """`perdure jobs` lists the jobs."""


class SessionMissing(NotFound):
    """There is no session or entry of this name. `perdure sessions` lists them."""


class AgentRunMissing(NotFound):
    """There is no run of an agent of this name. `perdure agents` lists them."""


class MemoryMissing(NotFound):
    """`perdure memories list` shows the ids and paths; with --all, also of superseded and retired memories."""


class FloorMissing(NotFound):
    """`perdure floor` lists the pages, `perdure floor cards` the cards, `perdure floor proposals` the proposals."""

    advises = False


class ProposalMissing(NotFound):
    """This proposal does not exist (any more). `perdure consolidate` lists the current proposals."""


class UserMissing(NotFound):
    """This home has no data of a user with this name. Nothing was done. Upper and lower case matter."""


class MachineMissing(NotFound):
    """This machine is not registered. `perdure machine list` shows names and ids; with --all, also revoked ones."""


class GrantMissing(NotFound):
    """You have no grant with this id. `perdure share list` shows the ids; with --all, also of ended grants."""


class TeamMissing(NotFound):
    """This home has no team with this name. `perdure team list` shows the teams."""


class TargetMissing(NotFound):
    """There is no target with this name. Name it in config.toml: a table [delivery.NAME] (docs/delivery.md)."""


class DeliveryMissing(NotFound):
    """No delivery has an id that begins so. `perdure deliveries` lists those that wait; with --all, also the others."""


class HomeFault(PerdureError):
    """This home cannot be used as it is. Run `perdure doctor`."""

    exit_code = 3


class HomeMissing(HomeFault):
    """There is no home in this folder yet. `perdure import` creates one; PERDURE_HOME sets another folder."""


class HomeNotPrivate(HomeFault):
    """Other users can read or own this home. Run `chmod 700` on it, and `chown` it to your user."""


class CredentialFault(HomeFault):
    """The credential of this machine cannot be used. Run `chmod 600` on auth.json, or join the home again."""


class NewerFormat(HomeFault):
    """A newer version of Perdure wrote this archive. Nothing was changed. Upgrade Perdure, then try again."""


class UnsupportedPlatform(HomeFault):
    """Perdure runs on Linux and macOS (on Windows, inside WSL): it relies on POSIX file locks and modes."""


class ThinHome(HomeFault):
    """This machine uses a remote home and stores no archive. Run this command on the machine of that home."""


class ClientOnly(HomeFault):
    """This is the client, for a home on another machine: run `perdure join URL`. A home of yours needs `perdure`."""


class NetworkFileSystem(HomeFault):
    """A network file system has no reliable locks and fsync. Set PERDURE_HOME to a folder on a local disk."""


class ReadOnlyHome(HomeFault):
    """This home is not writable. Reading still works; nothing was stored. Check free space, permissions and mounts."""


class SystemFault(PerdureError):
    """The operating system refused this. Check that the path exists, and what you may do there."""


class PackageMissing(PerdureError):
    """This optional part of Perdure is not installed. Install it with the command shown; the rest works without it."""


class ConfigFault(PerdureError):
    """Correct this setting in config.toml; docs/configuration.md lists them all."""

    exit_code = 3


class VariableMissing(ConfigFault):
    """Set this variable where Perdure starts (in a shell: `export NAME=VALUE`), and try again."""


class DefinitionFault(ConfigFault):
    """The page agent.yaml of the floor cannot be understood. Correct the named key; docs/agent.md lists them all."""


class TokenRefused(ConfigFault):
    """Telegram does not accept the token of this bot: it was revoked, or it is incomplete. Ask @BotFather for the
    token, put it into the environment variable that `telegram.token_env` names, and start again.
    """


class ModelMissing(ConfigFault):
    """No model is set that talks. `perdure models set resident gguf FILE` takes a model file of this machine, for
    trying; `perdure models set resident anthropic MODEL --key-env ANTHROPIC_API_KEY` a provider's (docs/models.md).
    """


class ArchiveFault(PerdureError):
    """The archive refused this write to protect its data. Run `perdure verify`."""


class DiskFull(ArchiveFault):
    """The disk is full. No acknowledged data was lost, and no partial data is kept. Free some space and try again."""


class BackupFault(ArchiveFault):
    """Take another copy of the backup, or another backup: this file is damaged, incomplete or something else."""


class DamagedRun(ArchiveFault):
    """The stored bytes of a run are damaged. Restore it from a backup; `perdure verify` lists all damaged runs."""


class StoreFault(PerdureError):
    """The store of the archive cannot be used as it is. Everything is safe on this machine; what is new waits here."""


class StoreAway(StoreFault):
    """The store of the archive gives no answer. Everything is safe on this machine, and what is new waits here until
    the store answers. `perdure store` tries again now.
    """


class StoreRefused(StoreFault):
    """The store of the archive refuses this machine. Everything is safe here, and what is new waits. Correct
    archive.store in config.toml or the credentials; then run `perdure store`.
    """


class NewerStore(StoreFault):
    """A newer Perdure wrote the store of the archive. Nothing there was changed. Upgrade Perdure on this machine."""


class DamagedStore(StoreFault):
    """An object in the store of the archive differs from what was put there. Nothing here was changed. Restore it in
    the store (a version or a backup of the bucket).
    """


class IndexFault(PerdureError):
    """The index cannot be used. The archive is intact: run `perdure rebuild`."""


class IndexMissing(IndexFault):
    """There is no index yet. The archive is intact: run `perdure rebuild`."""


class IndexDamaged(IndexFault):
    """The index is damaged, or another version made it. The archive is intact: run `perdure rebuild`."""


class IndexUnreachable(IndexFault):
    """The Postgres of the index does not answer as it must. Search reads the archive until then: docs/operating.md."""


class VectorsMissing(IndexFault):
    """Vectors are missing on disk. Keyword search still works; `perdure embed` makes the vectors again."""


class ModelFault(PerdureError):
    """The model gave no answer. Keyword search works without it; `perdure doctor` shows the reason."""

    usage: object = None  # the cost of the failed call, if known: a perdure.models.chat.TokenUsage


class RuntimeMissing(ModelFault):
    """The library that runs the model is not installed. Install it, or set another model (docs/models.md)."""


class WeightsMissing(ModelFault):
    """The weights of the model are missing. A released wheel contains them; in a checkout run `make weights`."""


class WeightsDamaged(ModelFault):
    """The weights do not match this version of Perdure. Install Perdure again (in a checkout: `make weights`)."""


class ModelFileMissing(ModelFault):
    """The model file does not exist. Set `model` of this role to the path of a GGUF file."""


class ModelUnreachable(ModelFault):
    """The endpoint did not answer. Check `url` in the settings, and check that the server runs."""


class ModelBusy(ModelUnreachable):
    """The endpoint is overloaded or failing after several tries. Perdure does the missing work later."""

    free_at: object = None  # when it answers again, if it said so: a datetime


class ModelLate(ModelUnreachable):
    """The model did not answer in time. Raise `timeout_s` (seconds) of its role, or set a faster model."""


class ModelRefused(ModelFault):
    """The endpoint refused the request. Check `model`, `url` and `key_env` in its settings."""


class BadAnswer(ModelFault):
    """The answer of the model has the wrong form and was not used. Try again, or set another model."""

    stop: str = ""  # why it stopped, if that is the reason: length, refused or empty


class ModelCancelled(ModelFault):
    """The call was cancelled before the answer was complete. Ask again to get a new answer."""


class ContextTooLarge(ModelFault):
    """The context does not fit the window of the model. Shorten the largest parts, or set a model with a larger window
    (`window_tokens` of its role). `perdure floor` edits the layers of the floor.
    """


class TurnBudgetSpent(ModelFault):
    """The model wanted to go on, and a limit of this message is reached. What was done is kept: say "go on"."""


class BudgetSpent(ModelFault):
    """A cap on the cost of models is reached; the work waits. `perdure models` shows the cost; see `models.caps`."""


class MeterFault(ModelFault):
    """The cost of models cannot be recorded, so no model is called. Make the folder `run/` of the home writable."""


class MeterFull(MeterFault):
    """The disk is full: the cost of models cannot be recorded, so no model is called. Free some space and try again."""


class TextRefused(ModelFault):
    """The model makes no vector for a text. Only keyword search finds this text."""


class PictureUnreadable(ModelFault):
    """This picture cannot be read. It stays in its transcript, and is tried again when the engine changes."""


class VectorRefused(ModelFault):
    """A vector is all zeros or not finite, so it cannot be compared. It was not stored."""


class ModelNonsense(ModelFault):
    """The answer of the endpoint cannot be understood. Check that its `url` in config.toml is right for this model."""


class DimensionMismatch(ModelFault):
    """The vectors of the model have another length than the settings. Correct `models.embedder.dimension`."""


class RemoteFault(PerdureError):
    """The remote home cannot be used. Captures wait in the outbox; `perdure doctor` shows the reason."""

    after_s: float = 0.0  # how long the home asks us to wait


class RemoteAway(RemoteFault):
    """The remote home does not answer now. Captures wait in the outbox and are sent later."""


class RemoteNotNow(RemoteAway):
    """The remote home answers, but accepts no data now. Captures wait in the outbox and are sent later."""


class CertificateRefused(RemoteAway):
    """This machine does not trust the certificate of the home, so nothing was sent. For a certificate authority of your
    own, name its file: `perdure join URL --ca FILE`, or `ca` under [remote] in config.toml.
    """


class JoinFault(RemoteFault):
    """No home answers there, so this machine joined none; nothing was changed. Check that `perdure serve` runs at the
    home, and that the address is the one which `perdure machine register` printed.
    """


class RemoteRefused(RemoteFault):
    """The home no longer accepts the credential of this machine. Captures wait in the outbox. Register the machine
    at the home (`perdure machine register`), then run `perdure join URL --replace` here.
    """

    reason = ""  # as the home said it


class CredentialMissing(RemoteRefused):
    """This machine has no credential for its home. Captures wait in the outbox. Register the machine at the home
    (`perdure machine register`), then run `perdure join URL` here; --replace replaces the credential of another home.
    """


class SecretRefused(RemoteRefused):
    """The home does not accept this secret. Copy it as `perdure machine register` printed it, or register again."""


class RemoteNonsense(RemoteFault):
    """The remote address does not answer like a Perdure home. Correct `remote.url` in config.toml; captures wait."""


class LineRefused(RemoteFault):
    """A proxy before the remote home refuses a request because of its size. Allow 128 MB in the proxy
    (nginx: `client_max_body_size 128m`). This session waits in the outbox; other sessions are sent.
    """


class FormatFault(PerdureError):
    """No supported transcript format fits these bytes. docs/formats.md lists them; `--format` forces one."""


class SourceAway(PerdureError):
    """This MCP server gave no answer that can be read. Nothing of it was stored. Check its table in config.toml."""


class ClientFault(PerdureError):
    """Perdure cannot read these settings of a client and did not change them. Correct them, or use --dry-run."""


class SyncFault(PerdureError):
    """The sync is not complete. No data is lost or half-copied: run `perdure sync` again to continue."""


class OtherVersion(SyncFault):
    """The two homes have versions of Perdure that do not fit. Nothing was exchanged. Upgrade the older version."""


class ServiceFault(PerdureError):
    """The resident home does not start, stop or work as it should. `perdure doctor` shows more."""

    advises = False


class DeliveryFault(PerdureError):
    """The target did not take the message. It is kept and tried again; `perdure deliveries` shows when."""

    after_s: float = 0.0  # how long the target asks us to wait
    status: int = 0  # of its answer over HTTP, where there was one


class DeliveryRefused(DeliveryFault):
    """The target refuses this message, so it is not tried again by itself. Correct the table of the target in
    config.toml, or what it names; then run `perdure deliveries retry`.
    """


class MailAway(DeliveryFault):
    """The mail folder cannot be read now. No mail is lost: `perdure mail --check` shows which server answers."""


class IdentityFault(PerdureError):
    """An identity server cannot be used as it is set or as it answers. Nothing was changed. See docs/identity.md."""

    advises = False


class IdentityServerAway(IdentityFault):
    """An identity server gave no answer. Nothing was changed. Try again later."""

    advises = True


class IdentityRefused(IdentityFault):
    """An identity server did not confirm who this is, or no user of this home is linked to them."""


class TierFault(PerdureError):
    """A tier of a workflow gave no answer. What was to be written waits and is tried again; other tiers go on."""


class TierStartFault(TierFault):
    """A back end of the tiers is not up. Other tiers are as they were; `perdure memory init` tries again."""


class NothingToExport(PerdureError):
    """Nothing was written. `perdure memories list` shows the paths."""


class Busy(PerdureError):
    """Another Perdure process is writing to this home. Nothing was changed. Try again in a moment."""

    exit_code = 5


class AlreadyServing(Busy):
    """A resident process already runs for this home. `perdure serve --stop` ends it."""


class AgentQueueFull(Busy):
    """Too many runs of agents wait. `perdure agents` lists them, `perdure agents cancel ID` ends one."""


class BotTaken(Busy):
    """A bot of Telegram has one reader, and this one has another. This process reads no more; nothing is lost. Stop the
    other process, or ask @BotFather for another token.
    """


class MailTaken(Busy):
    """Another process of this home answers its mail. End it, or leave it to `perdure serve`."""


class SessionHeld(Busy):
    """Another process holds this session. `perdure chat --resume SESSION --fork` continues it as one of its own."""
