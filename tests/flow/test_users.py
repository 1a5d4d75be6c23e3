"""One home with several users: the keeper and the jobs serve each with what is theirs, and nobody meets another's."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import perdure
from perdure.errors import NotFound
from perdure.floor.layers import to_diary_day
from perdure.home import Home
from perdure.index.catchup import CatchUpResult
from perdure.jobs import JobLog
from perdure.memories.stated import build_mark
from perdure.service import builtin_jobs, clock
from perdure.service.health import HealthState
from perdure.service.worker import MAX_OPEN_HOMES, IngestWorker, UserHomes, run_for_users
from perdure.surfaces.cli import cli
from perdure.testing import FakeEmbedder, Question, ScriptedChat
from perdure.types import Identity
from perdure.upkeep import Upkeep

WORDS = {
    "ada": "I prefer tabs over spaces in every project.",
    "bob": "I prefer tea over coffee in the morning.",
    "cy": "I prefer short names for local variables.",
}
OTHERS = ("bob", "cy")


def line(text: str, minute: int = 0, role: str = "user", *, day: str = "2026-01-15") -> bytes:
    stamp = f"{day}T09:{minute:02}:00Z"
    return json.dumps({"role": role, "content": text, "timestamp": stamp}).encode() + b"\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A home of ada's with nothing in it, in which words alone are searched."""
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    (path / "config.toml").write_text('user = "ada"\nmachine = "laptop"\n[models.embedder]\nkind = "off"\n')
    return path


def fill(place: Path, *users: str, data: Callable[[str], bytes] = lambda user: line(WORDS[user])) -> None:
    """One session of each user, that nobody looked at yet."""
    for user in users:
        with perdure.open(place, user=user) as home:
            home.capture(data(user), runtime="messages", session=f"{user}-1")


def keeper(home: Home, **how: Any) -> IngestWorker:
    return IngestWorker(home.path, home.clone_for_thread, HealthState(datetime.now(UTC)), round_s=60, prove_s=60, **how)


def texts(home: Home, user: str) -> list[str]:
    with home.clone_for_thread(identity=Identity(user, "laptop", "")) as theirs:
        return [memory.text for memory in theirs.memories.list_memories()]


def body(question: Question) -> str:
    return "\n".join(message.text for message in question.messages)


def test_everyone_with_runs_or_a_journal_is_a_user(place: Path) -> None:
    with perdure.open(place) as home:
        assert home.sharing.users() == []
        with UserHomes(home) as everyone:
            assert everyone.list_users() == ["ada"]
    fill(place, "cy", "bob")
    with perdure.open(place, user="dora") as dora:
        dora.remember("The key hangs by the door.")
    with perdure.open(place) as home, UserHomes(home) as everyone:
        assert home.sharing.users() == ["bob", "cy", "dora"]
        assert everyone.list_users() == ["ada", "bob", "cy", "dora"]


def test_as_a_user_the_home_has_their_things_and_no_others(place: Path) -> None:
    fill(place, "ada", "bob")
    with perdure.open(place) as home, UserHomes(home) as everyone:
        bob = everyone.open_as_user("bob")
        assert [hit.text for hit in bob.search("prefer").hits] == [WORDS["bob"]]
        assert [hit.text for hit in home.search("prefer").hits] == [WORDS["ada"]]
        assert everyone.open_as_user("bob") is bob and everyone.open_as_user("ada") is home
        (own,) = home.search("prefer").hits
        with pytest.raises(NotFound):
            bob.runs.get(own.run_id)


def test_unused_homes_are_closed(place: Path) -> None:
    with perdure.open(place) as home, UserHomes(home) as everyone:
        first = everyone.open_as_user("u0")
        for n in range(1, MAX_OPEN_HOMES + 1):
            everyone.open_as_user(f"u{n}")
        assert everyone.open_as_user(f"u{MAX_OPEN_HOMES}") is everyone.open_as_user(f"u{MAX_OPEN_HOMES}")
        assert everyone.open_as_user("u0") is not first


# the keeper -----------------------------------------------------------------------------------------------------


def test_keeper_stores_statements_of_each_user(place: Path) -> None:
    fill(place, *WORDS)
    with perdure.open(place) as home, UserHomes(home) as everyone:
        keeper(home).run_round(home, everyone)
        assert {user: texts(home, user) for user in WORDS} == {user: [text] for user, text in WORDS.items()}


def test_backlog_of_one_user_does_not_block_the_others(place: Path) -> None:
    """Without any time for a slice, a turn is one run; bob has forty and cy, who comes after him, one."""
    for n in range(40):
        with perdure.open(place, user="bob") as home:
            home.capture(line(f"I prefer port {9000 + n} for the server.", n), runtime="messages", session=f"b{n}")
    fill(place, "cy")
    with perdure.open(place) as home, UserHomes(home) as everyone:
        keeping = keeper(home, slice_s=0)
        for n_rounds in (1, 2):
            keeping.run_round(home, everyone)
            assert home.archive.ledger.get_meta(build_mark("bob")) == str(n_rounds)
        assert texts(home, "cy") == [WORDS["cy"]]


def test_round_reports_that_runs_are_left(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next begins at once where runs are left, unless this one came no further: another process is at it."""
    done = iter([CatchUpResult(n_runs=1, n_behind=2), CatchUpResult(n_runs=2), CatchUpResult(n_behind=2)])
    monkeypatch.setattr(Upkeep, "catch_up", lambda *_, **__: next(done))
    with perdure.open(place) as home, UserHomes(home) as everyone:
        keeping = keeper(home)
        assert [keeping.run_round(home, everyone) for _ in range(3)] == [True, False, False]


def test_keeper_takes_turns_by_time_slice_while_behind(place: Path) -> None:
    """Without any time for a slice, one turn a round; else everybody has one, beginning behind who came last."""
    users = ["ada", "bob", "cy"]
    with perdure.open(place) as home:
        keeping = keeper(home, slice_s=0)
        rounds = [list(keeping._take_turns("stated", users, is_behind=True)) for _ in range(4)]
        assert rounds == [["ada"], ["bob"], ["cy"], ["ada"]]
        assert list(keeping._take_turns("stated", users, is_behind=False)) == ["bob", "cy", "ada"]
        assert list(keeping._take_turns("embed", users, is_behind=True)) == ["ada"]  # counted apart
        assert list(keeper(home, slice_s=60)._take_turns("stated", users, is_behind=True)) == users


def test_failing_turn_of_one_user_does_not_stop_the_others(place: Path) -> None:
    fill(place, *WORDS)
    with perdure.open(place) as home, UserHomes(home) as everyone:
        journal = place / "archive" / "journal" / "bob"
        journal.parent.mkdir(exist_ok=True)
        journal.write_bytes(b"no folder")  # so that nothing can be appended
        keeping = keeper(home)
        keeping.run_round(home, everyone)
        assert texts(home, "cy") == [WORDS["cy"]]
        assert keeping._health_state.failure_codes["keeper"]
        journal.unlink()
        keeping.run_round(home, everyone)
        assert texts(home, "bob") == [WORDS["bob"]] and not keeping._health_state.failure_codes


def test_with_one_user_no_other_home_is_opened(place: Path) -> None:
    fill(place, "ada")
    with perdure.open(place) as home, UserHomes(home) as everyone:
        keeper(home).run_round(home, everyone)
        assert texts(home, "ada") == [WORDS["ada"]] and not everyone._open_homes


def test_homes_without_news_are_not_opened_again(place: Path) -> None:
    fill(place, *WORDS)
    with perdure.open(place) as home:
        keeping = keeper(home)
        with UserHomes(home) as everyone:
            keeping.run_round(home, everyone)
            assert list(everyone._open_homes) == ["bob", "cy"]
        with perdure.open(place, user="cy") as cy:
            cy.capture(line("I prefer oak for tables.", 5), runtime="messages", session="cy-2")
        with UserHomes(home) as everyone:
            keeping.run_round(home, everyone)
            assert list(everyone._open_homes) == ["cy"]


def test_new_turns_are_embedded_for_users_with_vectors(place: Path) -> None:
    with perdure.open(place, embedder=FakeEmbedder()) as home, UserHomes(home) as everyone:
        for user, words in WORDS.items():
            everyone.open_as_user(user).capture(line(words), runtime="messages", session="1")
        assert clock.run_job(home, "embed", trigger="person").counts["embedded"] >= 3
        before = [everyone.open_as_user(user).upkeep.vector_status().slabs[0].n_embedded for user in WORDS]
        for user in OTHERS:
            with perdure.open(place, user=user) as other:  # without the model, as a hook's process has none
                other.capture(line("The lighthouse keeper paints the door green.", 9), runtime="messages", session="2")
        keeper(home).run_round(home, everyone)
        status = {user: everyone.open_as_user(user).upkeep.vector_status().slabs[0] for user in WORDS}
        assert [status[user].n_embedded - n for user, n in zip(WORDS, before, strict=True)] == [0, 1, 1]
        assert [slab.n_missing for slab in status.values()] == [0, 0, 0]


# the jobs -------------------------------------------------------------------------------------------------------


def facts(user: str, day: str = "2026-01-15") -> bytes:
    """Two messages that only their words tell whose they are."""
    stone = {"ada": "amber", "bob": "beryl", "cy": "coral"}[user]
    return line(f"fact {stone}", 1, day=day) + line(f"noted, {stone}", 2, role="assistant", day=day)


STONES = ("amber", "beryl", "coral")


def echo(question: Question) -> dict[str, Any]:
    stone = re.findall(r"fact (\w+)", body(question))[0]
    made: dict[str, Any] = {"op": "create", "id": "", "path": f"stones/{stone}", "kind": "fact", "turns": [1, 1]}
    made |= {"text": f"It is {stone}.", "entities": [], "valid_from": "", "valid_until": "", "confidence": 0.9}
    return {"operations": [{**made, "reason": ""}]}


def test_mining_for_a_user_reads_only_their_turns(place: Path) -> None:
    fill(place, *WORDS, data=facts)
    chat = ScriptedChat([echo] * 9)
    with perdure.open(place, chats={"miner": chat}) as home:
        ended = clock.run_job(home, "mine", trigger="person")
        assert {user: texts(home, user) for user in WORDS} == {
            user: [f"It is {stone}."] for user, stone in zip(WORDS, STONES, strict=True)
        }
        assert [[stone for stone in STONES if stone in body(question)] for question in chat.asked] == [
            [stone] for stone in STONES
        ]
    assert (ended.result, ended.counts["new"], ended.why) == ("done", 3, "3 users: 3 done")
    assert {user: share.counts["new"] for user, share in ended.by_user.items()} == dict.fromkeys(WORDS, 1)


def test_pages_are_written_for_each_into_their_own_floor(place: Path) -> None:
    day = str(to_diary_day(datetime.now().astimezone()) - timedelta(days=1))  # the last that is over
    fill(place, *WORDS, data=lambda user: facts(user, day))

    def page(question: Question) -> dict[str, str]:
        found = [stone for stone in STONES if stone in body(question)]
        return {"text": f"**2026-01-15** We spoke of {' and '.join(found)} at length, and agreed on everything."}

    with (place / "config.toml").open("a") as settings:
        settings.write("[floor]\noverall = true\n")
    with perdure.open(place, chats={"summariser": ScriptedChat([page] * 9)}) as home:
        for name in ("recent", "diary"):
            ended = clock.run_job(home, name, trigger="person")
            assert {user: share.result for user, share in ended.by_user.items()} == dict.fromkeys(WORDS, "done"), ended
    for user, stone in zip(WORDS, STONES, strict=True):
        folder = place / "agents" / ("default" if user == "ada" else f"default~{user}")
        for path in (folder / "recent.md", folder / "diary" / f"{day}.md"):
            assert [one for one in STONES if one in path.read_text()] == [stone]


def test_job_that_fails_for_one_user_runs_for_the_others(place: Path) -> None:
    fill(place, *WORDS, data=facts)
    chat = ScriptedChat([echo, ConnectionError("the line of bob"), echo])
    with perdure.open(place, chats={"miner": chat}) as home:
        ended = clock.run_job(home, "mine", trigger="clock")
    assert ended.result == "failed" and "bob" not in ended.why
    assert [share.result for share in ended.by_user.values()] == ["done", "failed", "done"]
    assert "the line of bob" in ended.by_user["bob"].why


def test_user_sees_only_their_own_result_of_a_job(place: Path) -> None:
    fill(place, *WORDS, data=facts)
    with perdure.open(place, chats={"miner": ScriptedChat([echo, echo, ConnectionError("x")])}) as home:
        clock.run_job(home, "mine", trigger="clock")
    (kept,) = JobLog(place).read_history("mine")
    for user, result in (("bob", "done"), ("cy", "failed"), ("nobody", "nothing")):
        seen = kept.to_user_view(user)
        assert seen.result == result and seen.by_user == {}
        assert not [other for other in WORDS if other in f"{seen.why}{seen.counts}"]
    said = CliRunner().invoke(cli, ["jobs", "logs", "mine", "--home", str(place), "--json"])
    run = json.loads(said.output)["result"]["run"]
    assert (run["result"], run["counts"]["new"], run["n_users"]) == ("done", 1, 3)
    assert not re.search("bob|cy", said.output)
    said = CliRunner().invoke(cli, ["jobs", "runs", "mine", "--home", str(place), "--json"])
    (run,) = json.loads(said.output)["result"]["runs"]
    assert (run["result"], run["counts"]["new"]) == ("done", 1)
    assert not re.search("bob|cy", said.output)


def test_the_time_of_a_job_is_shared_out(place: Path) -> None:
    """The first never ends by itself: the others have their share of the time all the same."""
    fill(place, *WORDS)
    seen: list[str] = []

    def greedy(home: Home, stop: builtin_jobs.StopCheck) -> builtin_jobs.JobResult:
        seen.append(home.user)
        while not stop():
            pass
        return builtin_jobs.JobResult("")

    with perdure.open(place) as home:
        run_for_users(
            builtin_jobs.BuiltinJob("greedy", "", "skip", greedy, for_each_user=True, max_s=0.03), home, lambda: False
        )
    assert seen == ["ada", "bob", "cy"]


def test_jobs_of_the_whole_home_run_once(place: Path) -> None:
    fill(place, *WORDS)
    with perdure.open(place) as home:
        ended = clock.run_job(home, "verify", trigger="person")
    assert (ended.counts["runs"], ended.by_user) == (3, {})
    assert ended.to_user_view("bob") == ended


def test_erased_user_is_in_no_job_record(place: Path, grep: Callable[[Path, bytes], list[str]]) -> None:
    fill(place, *WORDS, data=facts)
    with perdure.open(place, chats={"miner": ScriptedChat([echo] * 9)}) as home:
        clock.run_job(home, "mine", trigger="clock")
    assert grep(place / "run" / "jobs", b'"bob"')
    with perdure.open(place, user="bob") as bob:
        bob.forgetting.erase_user()
    assert not grep(place / "run" / "jobs", b'"bob"') and grep(place / "run" / "jobs", b'"cy"')
    with perdure.open(place) as home:
        assert home.sharing.users() == ["ada", "cy"]
