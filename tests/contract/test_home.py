"""A home answers the same on this machine and over HTTP: one contract for `perdure.open()` and `perdure.connect()`."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

pytest.importorskip("uvicorn")

import perdure
from perdure import placed_turns, turn
from perdure.capture.events import HookEvent
from perdure.errors import RecallMissing, RemoteRefused, UsageError
from perdure.home_protocol import HomeProtocol
from perdure.service.server import HomeServer, Intervals
from perdure.sharing.machines import LocalAuthority
from perdure.surfaces.http.server import HttpServer
from perdure.surfaces.last_recall import describe_last_recall
from perdure.types import Filters, ForgetRequest, Live

START = datetime(2026, 1, 15, 9, tzinfo=UTC)
SAMPLES = Path(perdure.__file__).parent / "samples"
SETTINGS = """user = "ada"
machine = "tower"
[models.embedder]
kind = "off"
[server]
http = "127.0.0.1:0"
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[tuple[Path, str, str]]:
    """(the folder of a served home with the samples in it, its address, the secret of a machine)."""
    folder = tmp_path_factory.mktemp("served") / "home"
    folder.mkdir(mode=0o700)
    (folder / "config.toml").write_text(SETTINGS)
    with perdure.open(folder) as home:
        transcript = folder.parent / f"{COLUMNS_SESSION}.jsonl"
        transcript.write_bytes(b"".join(_make_columns()))
        home.import_files([SAMPLES, transcript])
        home.remember("The staging server listens on port 8642", cwd=None)
        home.floor.write("profile.md", "Ada builds tide gauges.")
        event = HookEvent("pi", "prompt", "live-1", prompt="which port does the staging server listen on?")
        assert turn.answer_event(home, event, limit_ms=20_000, mode="keyword").text
        _, secret = home.sharing.machines.register("ada", "tower")
        serving = HomeServer(home, intervals=Intervals(round_s=0.2, prove_s=0.5, tick_s=60))
        http = HttpServer(serving, LocalAuthority(folder, ["ada"]))
        thread = threading.Thread(target=serving.run, daemon=True)
        address = http.start()
        thread.start()
        yield folder, address, secret
        http.stop()
        serving.stop_event.set()
        thread.join(timeout=10)


COLUMNS_SESSION = "5f0c2a1b-0000-4000-8000-000000000000"
FILES, SKILLS = ("quay/crane.py", "quay/winch.py", "quay/rope.md"), ("rigging", "splicing")
ENTITIES = ("Grace Hopper", "ABC-42", "Marta Lindqvist", "QUAY-7")


def _make_columns() -> Iterator[bytes]:
    """Yield a session with edits of three files, two skills and four names."""
    calls = [("Edit", {"file_path": f"/w/{file}", "old_string": "a", "new_string": "b"}) for file in FILES]
    calls += [("Skill", {"skill": skill}) for skill in SKILLS]
    blocks = [{"type": "tool_use", "id": f"t{n}", "name": name, "input": said} for n, (name, said) in enumerate(calls)]
    words = f"The quay is the task of {ENTITIES[0]} and {ENTITIES[2]}: {ENTITIES[1]} and {ENTITIES[3]}."
    for n, (role, content) in enumerate((("user", words), ("assistant", blocks))):
        message = {"role": role, "content": content}
        stated_at = (START + timedelta(minutes=n)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        entry = {"type": role, "uuid": f"c{n}", "sessionId": "s", "timestamp": stated_at, "cwd": "/w"}
        yield json.dumps({**entry, "message": message}).encode() + b"\n"


@pytest.fixture(params=["local", "remote"])
def home(request, served) -> Iterator[HomeProtocol]:
    folder, address, secret = served
    opened = perdure.open(folder) if request.param == "local" else perdure.connect(address, secret)
    with opened:
        yield opened


@pytest.fixture
def both(served) -> Iterator[tuple[HomeProtocol, HomeProtocol]]:
    folder, address, secret = served
    with perdure.open(folder) as here, perdure.connect(address, secret) as there:
        yield here, there


def test_home_belongs_to_one_user(home: HomeProtocol) -> None:
    assert home.user == "ada"


@pytest.mark.parametrize(
    ("query", "filters"),
    [
        ("TIDE-4711", Filters()),
        ("tide", Filters(roles=("user",))),
        ("tide", Filters(runtimes=("codex", "pi"))),
        ("tide", Filters(kinds=("call", "result"))),
        ("", Filters(tools=("Bash",))),
        ("", Filters(files=("server.py",))),
        ("", Filters(machines=("tower",), since_at=START - timedelta(days=400), until_at=START + timedelta(days=400))),
        ("tide", Filters(entities=("TIDE-4711",))),
        ("tide", Filters(projects=("nowhere",))),
        ("port", Filters(begun_since_at=START - timedelta(days=3000))),
    ],
)  # fmt: skip
def test_search_is_the_same(query: str, filters: Filters, both: tuple[HomeProtocol, HomeProtocol]) -> None:
    here, there = (home.search(query, filters=filters, limit=7) for home in both)
    assert replace(there, took_ms=0, timings_ms={}) == replace(here, took_ms=0, timings_ms={})
    assert here.hits or filters.projects or filters.files or filters.entities


@pytest.mark.parametrize(
    ("column", "values"), [("files", FILES), ("skills", SKILLS), ("entities", ENTITIES), ("tools", ("Edit", "Skill"))]
)
def test_each_column_of_a_session_finds_its_run(column: str, values: tuple[str, ...], home: HomeProtocol) -> None:
    for value in values:
        hits = home.search("", filters=Filters(**{column: (value,), "conversations": (COLUMNS_SESSION,)})).hits
        assert hits and {hit.conversation for hit in hits} == {COLUMNS_SESSION}, value
    assert home.search("", filters=Filters(**{column: ("nowhere",)})).hits == ()


def test_search_finds_and_limits(home: HomeProtocol) -> None:
    everything = home.search("tide", limit=30)
    assert len(everything.hits) > 3 and len(home.search("tide", limit=2).hits) == 2
    conversations = tuple(dict.fromkeys(hit.conversation for hit in everything.hits))[:2]
    found = home.search("tide", filters=Filters(conversations=conversations), limit=30)
    assert {hit.conversation for hit in found.hits} == set(conversations)
    exact = everything.hits[0].stated_at
    assert exact is not None
    assert everything.hits[0].turn_id not in {
        hit.turn_id for hit in home.search("tide", filters=Filters(until_at=exact), limit=30).hits
    }
    with pytest.raises(UsageError):
        home.search("tide", mode="magic")


def test_recall_is_the_same(both: tuple[HomeProtocol, HomeProtocol]) -> None:
    for message, options in (
        ("which port does the staging server use?", {}),
        ("which port does the tide server use?", {"all_projects": True}),
        ("which port does the tide server use?", {"all_projects": True, "explain": True}),
        ("thanks", {}),
        ("which port does the tide server use?", {"as_of": START - timedelta(days=3000)}),
    ):
        here, there = (home.recall(message, now=START, mode="keyword", **options) for home in both)
        assert replace(there, timings_ms={}) == replace(here, timings_ms={})
        assert here.timings_ms.keys() == there.timings_ms.keys()


def test_recall_gives_cues_with_reasons(home: HomeProtocol) -> None:
    cue, *_ = home.recall("which port does the staging server listen on?").cues
    assert "8642" in cue.text and cue.why and cue.legs and cue.memory is not None


def test_context_is_the_same(both: tuple[HomeProtocol, HomeProtocol]) -> None:
    for options in ({}, {"platform": "telegram", "session": Live("live-1")}):
        here, there = (
            home.context("which port does the staging server use?", now=START, mode="keyword", **options)
            for home in both
        )
        assert replace(there.recalled, timings_ms={}) == replace(here.recalled, timings_ms={})
        assert (there.parts, there.n_tokens) == (here.parts, here.n_tokens)
        assert (there.anthropic(), there.openai()) == (here.anthropic(), here.openai())
    assert "Ada builds tide gauges." in str(there.anthropic())


def test_floor_is_the_same(both) -> None:
    here, there = (home.floor for home in both)
    assert there.layers(platform="telegram") == here.layers(platform="telegram")
    assert there.list_kept() == here.list_kept()
    assert there.read("profile.md") == here.read("profile.md") == "Ada builds tide gauges.\n"
    assert there.read("core.md") == here.read("core.md") == ""
    assert there.list_versions("profile.md") == here.list_versions("profile.md")


def test_names_of_projects_are_the_same(both) -> None:
    here, there = both
    assert there.runs.projects() == here.runs.projects() != []


def test_why_is_the_same(both) -> None:
    here, there = both
    injection = there.why("live")
    assert injection == describe_last_recall(here, "live") == there.why()
    assert (injection["runtime"], injection["session"]) == ("pi", "live-1")
    assert "8642" in injection["cues"][0]["text"] and injection["at"].tzinfo is not None
    with pytest.raises(RecallMissing, match="no recall for session other"):
        there.why("other")


def test_memories_are_the_same(both) -> None:
    here, there = both
    memory = there.remember("The backup runs at 03:40", kind="fact")
    here.upkeep.catch_up()
    assert here.memories.get(memory.memory_id) == there.memories.get(memory.memory_id) == memory
    assert there.memories.list_memories() == here.memories.list_memories()
    assert here.remember("The backup runs at 03:40").n_stated == 2
    assert there.memories.search("staging port") == here.memories.search("staging port") != []


def test_runs_are_the_same(both) -> None:
    here, there = both
    nodes = here.runs.forest(limit=50)
    assert there.runs.forest(limit=50) == nodes and len(nodes) > 2
    pi_runs = Filters(runtimes=("pi",), since_at=START - timedelta(days=3000))
    assert there.runs.forest(pi_runs) == here.runs.forest(pi_runs) != nodes
    for node in nodes:
        view, *rest = here.runs.conversation(node.run.conversation)
        assert there.runs.conversation(view.conversation) == [view, *rest] and there.runs.get(view.run_id) == view
        assert there.runs.raw(view.run_id) == here.runs.raw(view.run_id)
        assert there.resolve(view.run_id[:16]) == here.resolve(view.run_id[:16]) == ("run", view.run_id)
        turns = placed_turns.load_placed_turns(here, "run", view.run_id)
        assert placed_turns.load_placed_turns(there, "run", view.run_id) == turns != []
        turn_id = placed_turns.get_turn_id(turns[-1])
        assert there.runs.locate_turn(turn_id) == here.runs.locate_turn(turn_id)
        offsets = [low for low, _ in turns[-1][1].lines]
        assert there.runs.raw_lines(view.run_id, offsets) == here.runs.raw_lines(view.run_id, offsets) != []
    sidechains = [node.run for node in nodes for node in (node, *node.children) if node.run.sidechain]
    for view in sidechains:
        turns = placed_turns.load_placed_turns(here, "run", view.run_id)
        assert placed_turns.load_placed_turns(there, "run", view.run_id) == turns != []


def test_unknown_secret_opens_nothing(served) -> None:
    _, address, _ = served
    with pytest.raises(RemoteRefused):
        perdure.connect(address, "wrong")


def test_what_is_forgotten_is_the_same(both) -> None:
    here, there = both
    for request in (ForgetRequest(query="tide"), ForgetRequest(query="port", filters=Filters(roles=("user",)))):
        preview = here.forgetting.preview(request)
        assert preview.items and there.forgetting.preview(request) == preview
    with pytest.raises(UsageError, match="something else matches"):
        there.forgetting.delete(request, digest="another")
