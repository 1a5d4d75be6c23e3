"""Rows of the list of features, tried as a reviewer would: each test does what its row says, on a real home."""

from __future__ import annotations

import base64
import json
import os
import random
import re
import shutil
import signal
import string
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import log
from perdure.capture import events
from perdure.errors import ModelFault, NotFound
from perdure.index import store
from perdure.service import clock
from perdure.service.server import Intervals
from perdure.testing import FakeEmbedder, Question, ScriptedChat
from perdure.types import Filters, Origin

SOURCE = Path(perdure.__file__).parent
SETTINGS = 'user = "ada"\nmachine = "laptop"\n[models.embedder]\nkind = "off"\n'


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A home of ada's that searches by words only."""
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    (path / "config.toml").write_text(SETTINGS)
    return path


def line(text: str, minute: int = 0, role: str = "user") -> bytes:
    stamp = f"2026-01-15T09:{minute:02}:00Z"
    return json.dumps({"role": role, "content": text, "timestamp": stamp}).encode() + b"\n"


# capture --------------------------------------------------------------------------------------------------------

STEPS = (
    "ingest.store_delta", "Captures.drain", "catchup.catch_up", "stated.keep_statements", "Vectors.fill",
    "Upkeep.embed_new",
)  # fmt: skip
WORKER = """
import os, signal, sys
import perdure
from datetime import UTC, datetime
from perdure.archive import ingest
from perdure.captures import Captures
from perdure.index import catchup
from perdure.memories import stated
from perdure.service.health import HealthState
from perdure.service.worker import IngestWorker, UserHomes
from perdure.upkeep import Upkeep
from perdure.testing import FakeEmbedder
from perdure.index.home_vectors import HomeVectors

where, _, name = sys.argv[2].partition(".")
if where:
    scopes = {"Captures": Captures, "Upkeep": Upkeep, "Vectors": HomeVectors}
    scopes |= {"ingest": ingest, "catchup": catchup, "stated": stated}
    scope = scopes[where]
    inner = getattr(scope, name)

    def dies(*given, **named):
        inner(*given, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(scope, name, dies)
with perdure.open(sys.argv[1], embedder=FakeEmbedder()) as home, UserHomes(home) as user_homes:
    worker = IngestWorker(home.path, home.clone_for_thread, HealthState(datetime.now(UTC)), round_s=60, prove_s=60)
    for _ in range(2):
        worker.run_round(home, user_homes)
    assert not worker._health_state.failure_codes, worker._health_state.failure_codes
"""


def work(place: Path, kill_after: str = "") -> int:
    """Two rounds of the keeper in a process of its own, which may die after the first time that a step was done."""
    done = subprocess.run([sys.executable, "-c", WORKER, str(place), kill_after], check=False, capture_output=True)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode


def end_state(place: Path) -> dict[str, Any]:
    with perdure.open(place, embedder=FakeEmbedder()) as home:
        return {
            "runs": [(held.run_id, held.sha256) for held in home.archive.ledger.list_runs()],
            "hits": sorted((hit.turn_id, hit.text) for hit in home.search("", limit=99).hits),
            "memories": sorted((one.memory_id, one.text) for one in home.memories.list_memories(every=True)),
            "vectors": [(slab.n_embedded, slab.n_missing) for slab in home.upkeep.vector_status().slabs],
            "outbox": len(list((place / "outbox").glob("*.delta"))),
            "ok": home.upkeep.verify().ok,
        }


@pytest.mark.slow
def test_worker_killed_between_steps_reaches_the_same_end_state(tmp_path: Path) -> None:
    """A08: archive, projecting, statements and vectors are the steps; each is the last that one worker does."""

    def waiting(name: str) -> Path:
        place = tmp_path / (name or "whole")
        with perdure.open(place, user="ada", embedder=FakeEmbedder()) as home:
            (place / "config.toml").write_text('user = "ada"\nmachine = "laptop"\n')
            home.capture(line("The lighthouse stands on the cliff."), runtime="messages", session="old")
            home.upkeep.embed()
            for n in (1, 2):
                origin = Origin("messages", f"s{n}", f"s{n}")
                words = line(f"I prefer port 900{n} for the staging server.", n) + line("Noted.", n, "assistant")
                home.captures.enqueue(origin, words, from_offset=0, path=None)
        return place

    whole = waiting("")
    assert work(whole) == 0
    wanted = end_state(whole)
    assert len(wanted["runs"]) == 3 and len(wanted["memories"]) == 2 and wanted["ok"]
    assert (wanted["vectors"][0][1], wanted["outbox"]) == (0, 0)
    for step in STEPS:
        place = waiting(step)
        assert work(place, step) == -signal.SIGKILL, step
        assert work(place) == 0
        assert end_state(place) == wanted, step


@pytest.fixture
def served(place: Path) -> Iterator[Path]:
    """A home with `perdure serve` beside it."""
    words = [sys.executable, "-m", "perdure.surfaces.cli", "serve", "--home", str(place)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, env={**os.environ, "HOME": str(place.parent)}) as child:
        until(lambda: events.ask_resident(place, {"op": "health"}, timeout_s=2)["pid"] == child.pid)
        yield place
        child.terminate()


def until(ask: Callable[[], Any], *, limit_s: float = 30.0) -> Any:
    """The first answer that is one, asked for again and again."""
    ends_s = time.monotonic() + limit_s
    while True:
        try:
            if found := ask():
                return found
        except (OSError, ValueError):  # it does not answer yet
            pass
        assert time.monotonic() < ends_s, "it did not come"
        time.sleep(0.05)


@pytest.mark.slow
def test_phrase_of_this_session_is_found_within_half_a_minute(served: Path, tmp_path: Path) -> None:
    """A17: by the hook alone, and read by a home that cannot bring its index up to date."""
    transcript = tmp_path / "s1.jsonl"
    said = {"type": "user", "uuid": "u1", "sessionId": "s1", "cwd": "/w", "timestamp": "2026-01-15T09:00:00.000Z",
            "message": {"role": "user", "content": "The cobalt heron nests behind the pump house."}}  # fmt: skip
    transcript.write_bytes(json.dumps(said).encode() + b"\n")
    event = {"hook_event_name": "Stop", "session_id": "s1", "cwd": "/w", "transcript_path": str(transcript)}
    hook = [sys.executable, "-IS", str(SOURCE / "capture" / "__main__.py"), "claude-code", "--home", str(served)]
    subprocess.run(hook, input=json.dumps(event).encode(), check=True, capture_output=True)

    def hits() -> Any:
        try:
            with perdure.open(served, read_only=True) as home:
                return [hit for hit in home.search("cobalt heron").hits if not home.search("cobalt heron").degraded]
        except perdure.errors.IndexFault:
            return []

    assert [hit.run_id for hit in until(hits)]


@pytest.mark.slow
def test_each_capture_logs_its_numbers_and_no_words(served: Path) -> None:
    """A18."""
    with perdure.open(served) as home:
        origin = Origin("messages", "full", "full")
        home.captures.enqueue(origin, line("The cobalt heron nests here.") + b"no JSON\n", from_offset=0, path=None)
        summary = json.dumps({"type": "file-history-snapshot", "snapshot": {}}).encode() + b"\n"
        home.captures.enqueue(Origin("claude-code", "none", "none"), summary, from_offset=0, path=None)
    events.ask_resident(served, {"op": "wake"}, timeout_s=2)
    (full,) = until(lambda: list(log.read_entries(served, entry_type="captured")))
    (none,) = until(lambda: list(log.read_entries(served, entry_type="empty")))
    with perdure.open(served, read_only=True) as home:
        runs = {home.archive.read_run(held).source.runtime: held.run_id for held in home.archive.ledger.list_runs()}
    for noted, runtime, n_turns in ((full, "messages", 1), (none, "claude-code", 0)):
        wanted = {"run_id": runs[runtime], "user": "ada", "machine": "laptop", "runtime": runtime, "format": runtime,
                  "turn_count": n_turns, "chunk_count": n_turns}  # fmt: skip
        assert {name: noted[name] for name in wanted} == wanted
        assert noted["duration_ms"] >= 0
    assert (full["chunk_errors"], none["chunk_errors"]) == (1, 0)
    assert "heron" not in (served / "run" / "log.jsonl").read_text()


class Broken(FakeEmbedder):
    """Never embeds anything."""

    def embed(self, texts: Any, kind: Any) -> Any:
        raise ModelFault("the model is down")


@pytest.mark.index_file("it damages the file")
def test_capture_needs_neither_index_nor_model(tmp_path: Path) -> None:
    """A25: index and embedder are down while it is captured; by words it is found afterwards."""
    place = tmp_path / "home"
    with perdure.open(place, user="ada", embedder=FakeEmbedder()) as home:
        home.capture(line("The lighthouse stands on the cliff."), runtime="messages", session="old")
        home.upkeep.embed()
    used = store.find_current_file(place)
    assert used is not None
    used.write_bytes(b"this is no database" * 999)
    with perdure.open(place, user="ada", embedder=Broken()) as home:
        answer = home.capture(line("The cobalt heron nests here.", 1), runtime="messages", session="new")
        assert answer.outcome == "stored"
        posted = home.captures.enqueue(
            Origin("messages", "live", "live"), line("So does a heron of slate."), from_offset=0, path=None
        )
        assert posted > 0 and home.captures.drain() == 1
        found = home.search("heron")
        assert len(found.hits) == 2 and "index" in found.degraded
        used.unlink()
        (place / "index.db").unlink(missing_ok=True)
        home.upkeep.catch_up()
        found = home.search("heron")
        assert len(found.hits) == 2 and "index" not in found.degraded


def test_without_an_index_machine_and_runtime_filter_as_ever(place: Path) -> None:
    """A27."""
    for machine in ("laptop", "desk"):
        (place / "config.toml").write_text(SETTINGS.replace("laptop", machine))
        with perdure.open(place) as home:
            for runtime in ("messages", "pi"):
                home.capture(line(f"A heron of {machine} and {runtime}."), runtime=runtime, session=machine)
    for chosen in (
        Filters(machines=("desk",)),
        Filters(runtimes=("messages",)),
        Filters(machines=("desk",), runtimes=("messages",)),
    ):
        with perdure.open(place) as home:
            indexed = home.search("heron", filters=chosen)
            scanned = home.search("heron", filters=chosen, scan=True)
        assert indexed.degraded == () and scanned.degraded == ("index",)
        assert {hit.turn_id for hit in indexed.hits} == {hit.turn_id for hit in scanned.hits} != set()


# several users --------------------------------------------------------------------------------------------------


def test_two_users_with_one_entity_read_nothing_of_each_other(place: Path) -> None:
    """P22, W38: the same name, path, session and file on both sides; each way to read is tried with the other's ids."""
    for user, port in (("ada", 9001), ("xavier", 9002)):
        with perdure.open(place, user=user) as home:
            words = f"The staging server of Harbourgate listens on port {port}."
            home.capture(line(words) + line("Noted.", 1, "assistant"), runtime="messages", session="s", cwd="/w")
            home.remember(words, path="harbourgate/port", entities=("Harbourgate",), cwd="/w")
            home.floor.note(f"Harbourgate: {port}")
            home.floor.write("profile.md", f"# Profile\n\nRuns Harbourgate on {port}.\n", by="owner")
    with perdure.open(place, user="xavier") as other:
        theirs = other.search("Harbourgate").hits[0]
        memory = other.memories.list_memories()[0]
        every = other.memories.list_memories(every=True)
    with perdure.open(place, user="ada") as ada:
        reads: list[Callable[[], Any]] = [
            lambda: ada.runs.get(theirs.run_id),
            lambda: ada.runs.columns(theirs.run_id),
            lambda: ada.runs.transcript(theirs.run_id),
            lambda: ada.runs.descendants(theirs.run_id),
            lambda: ada.preview(theirs.turn_id),
            lambda: ada.runs.locate_turn(theirs.turn_id),
            lambda: ada.resolve(theirs.turn_id),
            lambda: ada.resolve(theirs.run_id),
            lambda: ada.memories.get(memory.memory_id),
            lambda: ada.resolve(memory.memory_id),
            lambda: ada.preview(memory.memory_id),
            lambda: ada.forgetting.plan([theirs.turn_id]),
            lambda: ada.forgetting.memories_of(memories=[memory.memory_id]),
            lambda: ada.runs.turn_offsets(theirs.run_id),
        ]
        for read in reads:
            with pytest.raises(NotFound):
                read()
        shown = [
            ada.search("Harbourgate", limit=99),
            ada.search("Harbourgate", scan=True),
            ada.search("9002").hits,
            ada.recall("Which port does Harbourgate listen on?", all_projects=True),
            ada.memories.search("Harbourgate", every=True),
            ada.memories.list_memories(every=True),
            ada.runs.forest(),
            [ada.memories.history(one.path) for one in ada.memories.list_memories()],
            ada.runs.conversation(theirs.conversation),
            ada.floor.layers(cwd="/w"),
            [ada.floor.read(name) for name in ada.floor.list_pages()],
            ada.floor.list_cards(),
            ada.context("Which port does Harbourgate listen on?", cwd="/w"),
            ada.memories.insights(),
            ada.memories.proposals(),
            ada.journal().read(),
            ada.runs.messages_by_month(),
            ada.floor.list_held_back(cwd="/w"),
        ]
        text = "\n".join(map(repr, shown))
        text = re.sub(r"\d+\.\d+", "", text)  # a time that something took may hold any digits
        assert "9001" in text and "9002" not in text and "xavier" not in text
        assert theirs.run_id not in text and memory.memory_id not in text
        assert not {one.memory_id for one in every} & {one.memory_id for one in ada.memories.list_memories(every=True)}


# secrets --------------------------------------------------------------------------------------------------------

_BASE62 = string.ascii_letters + string.digits
_HEX = "0123456789abcdef"
_UPPER = string.ascii_uppercase + "234567"


def fake(n_chars: int, letters: str = _BASE62) -> str:
    head = "".join(char for char in "aB3" if char in letters)
    return head + "".join(random.Random(n_chars).choices(letters, k=n_chars - len(head)))


def jwt() -> str:
    parts = ({"alg": "HS256", "typ": "JWT"}, {"sub": "1234567890", "name": "Ada"})
    head, claims = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return f"{head}.{claims}.{fake(43)}"


SECRETS = (  # put together here, so that a scanner of this repository finds none
    "AK" + "IA" + fake(16, _UPPER), "gh" + "p_" + fake(36), "gh" + "o_" + fake(37),
    "github" + "_pat_" + fake(22) + "_" + fake(59), "gl" + "pat-" + fake(20),
    "xo" + "xb-" + "123456789012-1234567890123-" + fake(24),
    "xo" + "xp-" + "123456789012-123456789012-" + fake(32, _HEX),
    "sk" + "_live_" + fake(25), "s" + "k-" + fake(48), "s" + "k-proj-" + fake(60),
    "s" + "k-ant-" + "api03-" + fake(93) + "AA", "AI" + "za" + fake(35), "np" + "m_" + fake(38),
    "py" + "pi-" + "AgEIcHlwaS5vcmc" + fake(80), "h" + "f_" + fake(34), "S" + "G." + fake(23) + "." + fake(44),
    "S" + "K" + fake(33, _HEX)[:32], "1102015" + "43:" + "AA" + fake(33), jwt(), fake(47),
)  # fmt: skip


def elsewhere(place: Path, secret: str) -> list[str]:
    """The files of a home, but for the captured bytes themselves, in which a secret stands."""
    found = []
    for path in place.rglob("*"):
        name = str(path.relative_to(place))
        if path.is_file() and not name.startswith("archive/runs/"):
            found += [name] if secret.encode() in path.read_bytes() or secret in name else []
    return found


def careless(question: Question) -> dict[str, Any]:
    """A model that knows a secret from somewhere and writes it into whatever it is asked for."""
    if question.schema and "operations" in json.dumps(question.schema):
        secret = SECRETS[len(question.messages) % len(SECRETS)]
        made = {"op": "create", "id": "", "path": "server/token", "kind": "fact", "turns": [1, 1], "reason": "",
                "text": f"The token of the server is {secret}.", "entities": [secret], "valid_from": "",
                "valid_until": "", "confidence": 0.9}  # fmt: skip
        return {"operations": [made]}
    return {"text": f"**2026-01-15** We set the key {SECRETS[3]} for the server, and it worked at once."}


def test_twenty_secrets_appear_in_no_derived_data(tmp_path: Path) -> None:
    """P23: captured in what people and tools say, stated, remembered, noted; then mined, summed up and recalled."""
    place = tmp_path / "home"
    chat = ScriptedChat([careless] * 99)
    assert len(set(SECRETS)) == 20
    with perdure.open(place, user="ada", embedder=FakeEmbedder(), chats={"miner": chat, "summariser": chat}) as home:
        for n, secret in enumerate(SECRETS):
            words = line(f"I prefer the key {secret} for the harbour server number {n}.", n)
            reply = line(f"export HARBOUR_{n}={secret}", n, "assistant")
            home.capture(words + reply, runtime="messages", session=f"s{n}")
            for keep in (
                lambda s=secret: home.remember(f"The harbour key is {s} from now on."),
                lambda s=secret: home.floor.note(f"Harbour key: {s}"),
            ):
                try:
                    keep()
                except perdure.errors.PerdureError as refused:
                    assert secret not in str(refused)
        home.upkeep.embed()
        for job in ("mine", "recent", "diary", "use", "consolidate"):
            clock.run_job(home, job, trigger="person")
        asked = "which key has the harbour server?"
        said = [
            home.recall(asked, all_projects=True), home.search("harbour key", limit=99), home.floor.layers(),
            home.context(asked), home.memories.list_memories(every=True),
        ]  # fmt: skip
        home.index().checkpoint()
    assert chat.asked
    prompts = "\n".join(message.text for question in chat.asked for message in question.messages)
    for secret in SECRETS:
        assert secret not in prompts and secret not in repr(said)
        assert elsewhere(place, secret) == []
        assert any(secret.encode() in path.read_bytes() for path in (place / "archive" / "runs").rglob("*.jsonl"))


# health, and a new installation ---------------------------------------------------------------------------------


def test_a_blocked_thread_is_noticed_within_a_minute() -> None:
    """E24: what is not proven for `stale_s` is red, and is to be proven every `prove_s` (test_resident blocks one)."""
    pace = Intervals()
    assert pace.prove_s + pace.round_s < pace.stale_s and pace.stale_s + pace.prove_s < 60


@pytest.mark.slow
def test_a_home_outlives_the_installation(place: Path, tmp_path: Path) -> None:
    """P26: an installation captures, remembers and goes; another finds everything, and the settings too."""

    def installed(name: str, *words: str) -> dict[str, Any]:
        folder = tmp_path / name
        if not folder.exists():
            shutil.copytree(SOURCE, folder / "perdure", ignore=shutil.ignore_patterns("weights", "__pycache__"))
        env = {**os.environ, "PYTHONPATH": str(folder), "PERDURE_HOME": str(place), "HOME": str(tmp_path)}
        command = [sys.executable, "-m", "perdure.surfaces.cli", *words, "--json"]
        done = subprocess.run(command, env=env, check=True, capture_output=True, cwd=tmp_path)
        answer: dict[str, Any] = json.loads(done.stdout)["result"]
        return answer

    session = tmp_path / "s.jsonl"
    session.write_bytes(line("The cobalt heron nests behind the pump house."))
    installed("first", "import", str(session))
    installed("first", "remember", "The pump house key hangs by the door.")
    before = installed("first", "search", "heron")["hits"]
    shutil.rmtree(tmp_path / "first")
    assert [hit["turn_id"] for hit in installed("second", "search", "heron")["hits"]] == [
        hit["turn_id"] for hit in before
    ]
    assert "hangs by the door" in json.dumps(installed("second", "memories", "list"))
    assert before[0]["machine"] == "laptop" and before


def test_only_the_owner_reads_any_file_of_a_lived_in_home(opened, message):
    """The promise of the README, for all that a home gathers: archive, index, floor, marks, logs."""
    home = opened()
    home.capture(message("user", "We moved staging to port 7000.", 0), runtime="messages", session="s")
    home.remember("I prefer Helix over vim.", kind="preference")
    home.floor.write("notes", "- one")
    home.floor.note("two")
    home.recall("Which port is staging?")
    home.context("Which port is staging?")
    open_to_others = [path for path in home.path.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o077]
    assert open_to_others == [] and len([*home.path.rglob("*")]) > 10
