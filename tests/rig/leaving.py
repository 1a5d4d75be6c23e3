"""A home in which one user left something in every corner, and a search for what is left of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import perdure
from perdure import log
from perdure.access import shown_alerts
from perdure.capture import credential, transcripts
from perdure.capture.credential import Credential
from perdure.home import Home
from perdure.jobs import JobLog, UserJobResult, sum_user_results
from perdure.testing import FakeEmbedder
from perdure.types import Origin

WORD = b"quokka"  # stands in everything of the user who leaves, and in nothing else
BOB = "bobquokka"


def open_as(place: Path, user: str) -> Home:
    """Open a home for a user."""
    return perdure.open(place, user=user, embedder=FakeEmbedder())


def fill_home(home: Path, message: Callable[..., bytes], settings: str = "") -> None:
    """Make a home of Mira's in which Bob left something in every corner."""
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(f'user = "mira"\n{settings}')
    with open_as(home, "mira") as mira:
        mira.capture(message("user", "The harbour office opens at nine"), runtime="messages", session="m1")
        mira.remember("The harbour office opens at nine")
        mira.floor.note("The key hangs behind the door")
        mira.sharing.share(BOB, "tag", "harbour")
        mira.sharing.share("tom", "tag", "harbour")
        mira.upkeep.embed()
    with open_as(home, BOB) as bob:
        line = message("user", "The quokka sleeps in the shed")
        bob.capture(
            line, runtime="messages", session="quokka-1", cwd="/w/quokka", tags=["quokka"], path="/w/quokka.jsonl"
        )
        bob.capture(message("user", "A second quokka"), runtime="messages", session="quokka-2")
        bob.remember("Quokkas are shy: quokka", path="animals/quokka")
        bob.floor.note("Feed the quokka at six")
        bob.floor.write("profile.md", "I keep a quokka.\n")
        bob.forgetting.apply(bob.forgetting.plan([bob.search("second").hits[0].turn_id]))
        bob.sharing.machines.register(BOB, "quokka-phone")
        bob.sharing.share("mira", "tag", "quokka")
        bob.upkeep.embed()
        bob.captures.mark_incognito("messages", "burrow")
        bob.upkeep.pack(idle_days=0)
        assert bob.search("shed").hits
        origin = Origin("messages", "quokka-3", "quokka-3")
        bob.captures.enqueue(origin, message("user", "The quokka is back"), from_offset=0, path="/w/quokka3.jsonl")
        delta = next((home / "outbox").glob("*.delta"))
        shutil.copy(delta, delta.with_suffix(".unreadable"))
    log.append_entry(home, "late", session="quokka-1")
    transcripts.store_pending_text(home, "gemini-cli", "quokka-1", "The quokka sleeps")
    shown_alerts.mark_shown(home, BOB, {"quokka": "notes.md"})
    done = sum_user_results({BOB: UserJobResult("done", "quokka mined")})
    JobLog(home).run("mine", lambda: done, trigger="clock", now=lambda: datetime.now(UTC))
    credential.write_credential(home, Credential(BOB, "m-1", "quokka-phone", "pdr-x"))


def find_traces(home: Path, grep: Callable[[Path, bytes], list[str]]) -> list[str]:
    """Return every file of a home that holds the word, or has it in its name."""
    names = [str(path.relative_to(home)) for path in home.rglob("*") if WORD.decode() in path.name.lower()]
    return [*names, *grep(home, WORD), *grep(home, WORD.title())]
