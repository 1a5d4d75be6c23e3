"""Perdure: a memory for any LLM agent that outlives its context, its session, its machine and its model.

    import perdure

    with perdure.open() as home:
        home.capture(b'{"role": "user", "content": "We chose SQLite."}\n', runtime="messages", session="s1")
        for hit in home.search("sqlite").hits:
            print(hit.stated_at, hit.text)
        for cue in home.recall("Which database do we use?").cues:
            print(cue.stated_at, cue.text, cue.why)

Importing this costs little: what a name needs is loaded when it is first used.
"""

import sys

TYPE_CHECKING = False  # as typing's own, which a hook would pay for
if TYPE_CHECKING:
    from typing import Any

    from perdure.errors import NotFound, PerdureError, UsageError
    from perdure.home import Home
    from perdure.home import open_home as open
    from perdure.remote_home import RemoteHome, connect
    from perdure.types import Cue, Filters, Hit, Live, Principal, Recalled, RunView, SearchResult

__version__ = "0.1.0"
__all__ = [
    "Cue",
    "Filters",
    "Hit",
    "Home",
    "Live",
    "NotFound",
    "PerdureError",
    "Principal",
    "Recalled",
    "RemoteHome",
    "RunView",
    "SearchResult",
    "UsageError",
    "connect",
    "open",
]  # fmt: skip

_PLACES = {
    "Cue": "types", "Filters": "types", "SearchResult": "types", "Hit": "types", "Live": "types", "Principal": "types",
    "Recalled": "types", "RunView": "types",
    "RemoteHome": "remote_home", "connect": "remote_home",
    "Home": "home", "NotFound": "errors", "PerdureError": "errors", "UsageError": "errors",
}  # fmt: skip


def __getattr__(name: str) -> "Any":
    from importlib import import_module  # a hook pays for what is imported above

    if name in ("open", "connect", "Home", "RemoteHome"):
        _refuse_windows()
    if name == "open":
        return import_module("perdure.home").open_home
    if name in _PLACES:
        return getattr(import_module(f"perdure.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'perdure' has no attribute {name!r}")


def _refuse_windows() -> None:
    """What follows imports POSIX file locks: say so before Python does in its own words."""
    if sys.platform.startswith("win"):
        from perdure.errors import UnsupportedPlatform

        raise UnsupportedPlatform(sys.platform)
