"""Every error that Perdure raises, in one tree. The class docstring is the message and says what to do.

PerdureError
├── UsageError                 the call was wrong; exit status 2
│   ├── EditRefused
│   └── ToolError
├── NotFound                   nothing of that id that this principal may see; exit status 4
│   ├── MemoryMissing
│   ├── FloorMissing
│   ├── ProposalMissing
│   ├── UserMissing
│   ├── MachineMissing
│   └── GrantMissing
├── HomeFault                  the home cannot be used as it is; exit status 3
│   ├── HomeMissing
│   ├── HomeNotPrivate
│   ├── CredentialFault
│   ├── NewerFormat
│   ├── UnsupportedPlatform
│   ├── ThinHome
│   ├── NetworkFileSystem
│   └── ReadOnlyHome
├── PackageMissing             an optional part is not installed
├── ConfigFault                config.toml says something that cannot be meant
├── ArchiveFault               the truth is damaged, or would be; nothing was written
│   ├── DiskFull
│   └── DamagedRun
├── IndexFault                 the cache is missing or damaged; the archive still answers
│   ├── IndexMissing
│   ├── IndexDamaged
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
│   ├── BudgetSpent
│   ├── MeterFault
│   ├── TextRefused
│   ├── VectorRefused
│   ├── ModelNonsense
│   └── DimensionMismatch
├── RemoteFault                the remote home cannot be asked; what was captured waits in the outbox
│   ├── RemoteAway
│   │   └── RemoteNotNow
│   ├── RemoteRefused
│   │   ├── CredentialMissing
│   │   └── SecretRefused
│   ├── RemoteNonsense
│   └── LineRefused
├── FormatFault                bytes that no format claims, or that break their own
├── SyncFault                  two homes could not exchange; either holds what it held, and the next try goes on
│   └── OtherVersion
├── ClientFault                a client's settings are not what they are expected to be; nothing was changed
└── Busy                       another process holds the lock
    └── AlreadyServing
"""

from __future__ import annotations


class PerdureError(Exception):
    """Something went wrong in Perdure."""

    exit_code = 1
    advises = True  # True: the advice follows the detail; False: the detail itself says it

    def __init__(self, detail: str = "") -> None:
        """`detail` names the thing (a path, an id); the class docstring tells what to do about it."""
        self.detail = detail
        doc = (type(self).__doc__ or "").strip()
        super().__init__(f"{detail}: {doc}" if detail and self.advises else detail or doc)

    @property
    def code(self) -> str:
        """A stable name for machines, e.g. `network-file-system`."""
        name = type(self).__name__
        return "".join("-" + c.lower() if c.isupper() else c for c in name).lstrip("-")


class UsageError(PerdureError):
    """That cannot be asked for. See `perdure --help`."""

    exit_code = 2
    advises = False


class EditRefused(UsageError):
    """This may not be written into the floor. Nothing was changed."""

    advises = True


class ToolError(UsageError):
    """A command of the memory tool was refused, in the words that its model is told. Nothing was changed."""


class NotFound(PerdureError):
    """Nothing by that id that you may see. `perdure search` and `perdure tree` show ids."""

    exit_code = 4


class MemoryMissing(NotFound):
    """`perdure memories list` shows the ids and paths of memories; with --all, also of what was replaced or retired."""


class FloorMissing(NotFound):
    """`perdure floor` shows the pages of the floor, `perdure floor cards` and `perdure floor proposals` the rest."""


class ProposalMissing(NotFound):
    """There is no such proposal now. `perdure consolidate` lists those that there are."""


class UserMissing(NotFound):
    """This home holds nothing of anybody of that name, and nothing was done. Capitals count in a name."""


class MachineMissing(NotFound):
    """There is no such machine. `perdure machine list` shows their names and ids; with --all, also of those revoked."""


class GrantMissing(NotFound):
    """You share nothing by that id. `perdure share list` shows the ids; with --all, also of what is over."""


class HomeFault(PerdureError):
    """This home cannot be used as it is. Run `perdure doctor`."""

    exit_code = 3


class HomeMissing(HomeFault):
    """There is no home here yet. `perdure import` or `perdure remember` makes one; PERDURE_HOME says where."""


class HomeNotPrivate(HomeFault):
    """Others can read or own this home. Make it yours alone: `chmod 700` it, and `chown` it to you."""


class CredentialFault(HomeFault):
    """The credential of this machine cannot be used as it is. Make auth.json yours alone (`chmod 600`) or join anew."""


class NewerFormat(HomeFault):
    """A newer Perdure wrote this archive. Nothing was touched: upgrade Perdure, then try again."""


class UnsupportedPlatform(HomeFault):
    """Perdure runs on Linux and macOS (on Windows, inside WSL): it relies on POSIX file locks and modes."""


class ThinHome(HomeFault):
    """This machine keeps nothing itself: its home is at that address, and this command is one to run there."""


class NetworkFileSystem(HomeFault):
    """A home cannot lie on a network file system: it keeps no locks and no fsync. Set PERDURE_HOME to a local disk."""


class ReadOnlyHome(HomeFault):
    """This home cannot be written. Reading still works; nothing was captured. Check permissions and mount options."""


class PackageMissing(PerdureError):
    """That part of Perdure is optional, and not installed here. Install it so; the rest works without it."""


class ConfigFault(PerdureError):
    """config.toml cannot be understood. Correct the named setting; docs/configuration.md lists them all."""

    exit_code = 3


class ArchiveFault(PerdureError):
    """The archive refused the write to keep what it has. Run `perdure verify`."""


class DiskFull(ArchiveFault):
    """The disk is full. Nothing acknowledged was lost, nothing half-written is kept; free some space and repeat."""


class DamagedRun(ArchiveFault):
    """A run's bytes are not those that were captured. Restore it from a backup; `perdure verify` names every one."""


class IndexFault(PerdureError):
    """The index cannot be used. The archive is intact: run `perdure rebuild`."""


class IndexMissing(IndexFault):
    """There is no index yet. The archive is intact: run `perdure rebuild`."""


class IndexDamaged(IndexFault):
    """The index is damaged or of another version. The archive is intact: run `perdure rebuild`."""


class VectorsMissing(IndexFault):
    """Vectors that the index counts on are not on disk. Words are still found; `perdure embed` makes them again."""


class ModelFault(PerdureError):
    """The model gave no answer. Keyword search works without it; `perdure status` says what is missing."""

    usage: object = None  # the cost of the failed call, if known: a perdure.models.chat.TokenUsage


class RuntimeMissing(ModelFault):
    """The library that runs the model is not installed. Install it, or set another model (docs/models.md)."""


class WeightsMissing(ModelFault):
    """The model's weights are not there. A released wheel carries them; in a checkout run `make weights`."""


class WeightsDamaged(ModelFault):
    """These weights are not those that this version was made for. Install Perdure again (or `make weights`)."""


class ModelFileMissing(ModelFault):
    """There is no model file there. Correct `model` in the settings of its role: the path of a GGUF file you have."""


class ModelUnreachable(ModelFault):
    """The endpoint did not answer. Check its `url` in the settings, and that the server runs."""


class ModelBusy(ModelUnreachable):
    """The endpoint is overloaded or failing, however often it was tried. What is missing is done later."""


class ModelLate(ModelUnreachable):
    """The model took longer than it was given, and was left. Raise its `timeout_s`, or set a faster model."""


class ModelRefused(ModelFault):
    """The endpoint refused the request. Check `model`, `url` and the key in `key_env` of its settings."""


class BadAnswer(ModelFault):
    """The model's answer has not the form that was asked for, and nothing of it was used. Try again, or set another."""


class BudgetSpent(ModelFault):
    """A cap on models is reached; what needs them waits. `perdure models` shows what was spent; raise `models.caps`."""


class MeterFault(ModelFault):
    """What models cost cannot be recorded here, and so none is asked. See that the home's `run/` can be written."""


class TextRefused(ModelFault):
    """The model has no vector for a text. That text is found by its words only."""


class VectorRefused(ModelFault):
    """A vector of zeros, or with numbers that are none, cannot be compared with anything. It was not kept."""


class ModelNonsense(ModelFault):
    """The endpoint answered something else than vectors. Check that `models.embedder.url` is an embedding endpoint."""


class DimensionMismatch(ModelFault):
    """The model's vectors have another length than was set. Correct `models.embedder.dimension`."""


class RemoteFault(PerdureError):
    """The remote home cannot be asked. What was captured waits in the outbox; `perdure doctor` says more."""

    after_s: float = 0.0  # how long the home asks us to wait


class RemoteAway(RemoteFault):
    """The remote home does not answer now. What was captured waits in the outbox and is sent when it does."""


class RemoteNotNow(RemoteAway):
    """The remote home answers, and takes nothing now. What was captured waits in the outbox and is sent later."""


class RemoteRefused(RemoteFault):
    """This machine's credential is not accepted any more. What was captured waits in the outbox: have the machine
    registered at the home (`perdure machine register`), then `perdure join URL --replace` here.
    """


class CredentialMissing(RemoteRefused):
    """This machine has no credential for its home. What was captured waits in the outbox: have the machine registered
    there (`perdure machine register`), then `perdure join URL` here, with --replace where there is one of another home.
    """


class SecretRefused(RemoteRefused):
    """The home does not accept this secret. Copy it as `perdure machine register` printed it, or register anew."""


class RemoteNonsense(RemoteFault):
    """What answers there is no Perdure home. Correct `remote.url` in config.toml; what was captured waits meanwhile."""


class LineRefused(RemoteFault):
    """What stands before the remote home (a proxy) takes no request as long as a line that waits. Let it take 128 MB
    (nginx: `client_max_body_size 128m`); that session waits in the outbox until then, others are sent.
    """


class FormatFault(PerdureError):
    """No supported transcript format fits these bytes. docs/formats.md lists them; `--format` forces one."""


class ClientFault(PerdureError):
    """These settings of a client are not understood, and were left as they are. Correct them, or ask for --dry-run."""


class SyncFault(PerdureError):
    """The two homes could not exchange all. Nothing is lost and nothing half-taken: sync again, and it goes on."""


class OtherVersion(SyncFault):
    """The Perdure there and the one here do not understand each other. Nothing was exchanged: upgrade the older one."""


class Busy(PerdureError):
    """Another Perdure process is writing here. Nothing was changed; try again in a moment."""

    exit_code = 5


class AlreadyServing(Busy):
    """This home has its resident process already; there is one for each home. `perdure serve --stop` ends it."""
