"""`import` on a machine that keeps nothing itself: what is on its disk goes through its outbox.

Nothing is counted as captured before it is durable in the outbox; what the home has already, it keeps once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from perdure import config as settings
from perdure import formats
from perdure.capture import gemini, outbox, places, post, privacy, ship
from perdure.capture.origin import Fields
from perdure.capture.rules import Rules
from perdure.errors import FormatFault, PerdureError, UsageError
from perdure.intake import HEAD_BYTES, Imported, clean
from perdure.types import Origin

_MOST_BYTES = 1 << 26  # that wait before they are sent on
_WAIT_S = 60.0  # for another process that is sending

Progress = Callable[[int], object]  # takes how many bytes were looked at


def import_files(rules: Rules, paths: Sequence[Path], *, tags: Sequence[str], runtime: str | None, step: Progress
                 ) -> Imported:  # fmt: skip
    """Send every transcript among these files and folders, or in the standard places; says what was left out.

    Raises UsageError while capture is paused, RemoteFault where the home takes nothing: what was read by then waits.
    """
    if privacy.paused(rules.home, datetime.now(UTC)):
        raise UsageError("capture is paused (`perdure resume` ends that); nothing was copied")
    done, n_bytes = Imported(), 0
    for path in _sources(rules.home, paths):
        done.n_files += 1
        try:
            _take(rules, path, tags, runtime, done)
            n_bytes += path.stat().st_size
        except (PerdureError, OSError) as error:
            done.refused.append((str(path), str(error)))
        if outbox.backlog(rules.home / "outbox").n_bytes > _MOST_BYTES:
            ship.ship(rules, wait_s=_WAIT_S)
        step(n_bytes)
    ship.ship(rules, wait_s=_WAIT_S)
    return done


def _sources(home: Path, paths: Sequence[Path]) -> Iterable[Path]:
    """The files that are looked at: never those of Perdure itself."""
    if not paths:
        return [path for _, path in places.find(settings.user_home(), settings.environment)]
    own = home.resolve()
    found = [below for path in paths for below in places.below(path)]
    return [path for path in found if not path.resolve().is_relative_to(own)]


def _take(rules: Rules, path: Path, tags: Sequence[str], forced: str | None, done: Imported) -> None:
    """Put what a file gained into the outbox."""
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    runtime = forced or formats.detect(head, path.name)
    if not head.strip():
        done.n_unchanged += 1
    elif runtime is None:
        raise FormatFault(str(path))
    elif not formats.is_append_only(runtime, head):
        for emitted, lines in formats.emit(runtime, path):
            fields = msgspec.to_builtins(_placed(clean(emitted), path))
            if _may(rules, fields, path, done):
                _note(done, runtime, post.post_lines(rules, fields, lines, path=str(path.absolute())))
    elif not (runtime == "gemini-cli" and gemini.is_blank(path)):
        fields = msgspec.to_builtins(origin_of(runtime, head, path))
        if _may(rules, fields, path, done):
            n_bytes = post.post_file(rules, fields, path, tags=tags)[1]
            done.n_bytes += n_bytes
            _note(done, runtime, n_bytes)


def _may(rules: Rules, fields: Fields, path: Path, done: Imported) -> bool:
    """Whether anything of a session may be copied; notes why not."""
    refusal = post.refusal(rules, fields)
    done.left_out += [(str(path), refusal)] if refusal else []
    return refusal is None


def _note(done: Imported, runtime: str, n_new: int) -> None:
    done.n_unchanged += not n_new
    done.n_runs += bool(n_new)
    done.by_runtime.update([runtime] if n_new else [])


def origin_of(runtime: str, head: bytes, path: Path) -> Origin:
    """Whose session a transcript holds."""
    return _placed(clean(formats.identify(runtime, head, str(path.absolute()))), path)


def _placed(origin: Origin, path: Path) -> Origin:
    """The origin with the folder that is noted beside the transcript, where it does not say."""
    if origin.runtime != "gemini-cli" or origin.cwd is not None:
        return origin
    return replace(origin, cwd=gemini.folder(path.absolute()))
