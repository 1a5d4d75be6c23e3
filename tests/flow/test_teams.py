"""What a team reads by a rule: from when, until when, who; notes after a review; a person who leaves."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import perdure
from perdure.archive.archive import Delta
from perdure.errors import NotFound, TeamMissing, UsageError
from perdure.home import Home
from perdure.memories.store import MemoryDraft
from perdure.sharing.machines import LocalAuthority
from perdure.surfaces.cli import cli
from perdure.types import Origin, Span

START = datetime(2026, 1, 15, 9, tzinfo=UTC)
BEGIN = datetime(1970, 1, 1, tzinfo=UTC)
KEY = "sk-ant-" + "api03-Zx8Qw3Er5Ty7Ui9Op1As2Df4Gh6Jk"


class Company:
    """A home of mira's, in which others work too."""

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir(mode=0o700)
        (place / "config.toml").write_text('user = "mira"\n[memories]\nstated = false\n')
        self.homes: dict[str, Home] = {}
        self.n_said = 0

    def __getitem__(self, user: str) -> Home:
        if user not in self.homes:
            self.homes[user] = perdure.open(self.place, user=user)
        return self.homes[user]

    def say(self, user: str, words: str, *, project: str | None, at: datetime = START, **how: Any) -> str:
        """Let somebody say something; return the id of the run."""
        self.n_said += 1
        data = json.dumps({"role": "user", "content": words, "timestamp": at.isoformat()}).encode() + b"\n"
        session = f"{user}-{self.n_said}"
        delta = Delta(Origin("messages", session, session), user, "box", data, project=project, **how)
        (answer,) = self[user].archive.store([delta], now=START, tombstones={})
        self[user].upkeep.catch_up()
        return answer.run_id

    def found(self, user: str, query: str = "buoy") -> set[str]:
        """Return what a user finds."""
        return {hit.text for hit in self[user].search(query, mode="keyword").hits}

    def recalled(self, user: str, message: str, cwd: str) -> list[str]:
        """Return what a user is told beside a message in a folder."""
        return [cue.text for cue in self[user].recall(message, cwd=cwd, mode="keyword").cues]


@pytest.fixture
def company(tmp_path: Path) -> Iterator[Company]:
    made = Company(tmp_path / "home")
    for user in ("ada", "bob", "eve"):
        made.say(user, f"I am {user}", project=None)
    teams = made["mira"].sharing.teams
    teams.set_rule("orchard")
    teams.add("orchard", "ada")
    teams.add("orchard", "bob", is_reviewer=True)
    yield made
    for home in made.homes.values():
        home.close()


# a project that a team reads -----------------------------------------------------------------------------------


def test_team_reads_a_shared_project_from_now_on(company: Company) -> None:
    company.say("ada", "the buoy was red", project="/home/ada/orchard")
    given = company["ada"].sharing.share("@orchard", "project", "/home/ada/orchard")
    later = datetime.now(UTC) + timedelta(seconds=5)
    company.say("ada", "the buoy is green", project="/home/ada/orchard", at=later)
    company.say("ada", "my own buoy", project="/home/ada/diary", at=later)
    assert given.grant.since_at is not None and company["ada"].sharing.count_granted_runs(given.grant) == 1
    assert company.found("bob") == {"the buoy is green"}
    assert company.found("eve") == set() == company.found("mira")  # an admin reads nothing by being one
    company["mira"].sharing.teams.add("orchard", "eve")
    assert company.found("eve") == {"the buoy is green"}


def test_team_reads_what_was_said_before_only_when_asked(company: Company) -> None:
    company.say("ada", "the buoy was red", project="/home/ada/orchard")
    company.say("ada", "an old buoy", project="/home/ada/orchard", at=START - timedelta(days=9))
    given = company["ada"].sharing.share("@orchard", "project", "/home/ada/orchard", since_at=START)
    assert company.found("bob") == {"the buoy was red"}
    assert company["ada"].sharing.share("@orchard", "project", "/home/ada/orchard") == given  # it covers more already
    company["ada"].sharing.share("@orchard", "project", "/home/ada/orchard", since_at=BEGIN)
    assert company.found("bob") == {"the buoy was red", "an old buoy"}


def test_right_ends_at_once_everywhere(company: Company) -> None:
    run_id = company.say("ada", f"the buoy key is {KEY}", project="/home/ada/orchard")
    memory = company["ada"].remember("The buoy is green", path="buoy/colour", cwd="/home/ada/orchard")
    given = company["ada"].sharing.share("@orchard", "project", "/home/ada/orchard", since_at=BEGIN)
    bob = company["bob"]
    assert company.found("bob") and bob.memories.shared.get(memory.memory_id).text == "The buoy is green"
    assert KEY not in str(company.found("bob")) and KEY.encode() not in bob.runs.raw(run_id)
    company["mira"].sharing.teams.remove("orchard", "bob")
    assert company.found("bob") == set() and bob.memories.shared.list_memories(every=True) == []
    with pytest.raises(NotFound):
        bob.runs.raw(run_id)
    company["mira"].sharing.teams.add("orchard", "bob")
    assert company.found("bob")
    company["ada"].sharing.grants.revoke(given.grant.grant_id)
    assert company.found("bob") == set()
    assert not company.recalled("bob", "what colour has the buoy?", "/home/bob/orchard")


def test_member_declines_for_themselves_alone(company: Company) -> None:
    company.say("ada", "the buoy was red", project="/home/ada/orchard")
    company["mira"].sharing.teams.add("orchard", "eve")
    given = company["ada"].sharing.share("@orchard", "project", "/home/ada/orchard", since_at=BEGIN)
    company["bob"].sharing.grants.decline(given.grant.grant_id)
    assert company.found("bob") == set() and company.found("eve") == {"the buoy was red"}
    assert company["bob"].sharing.grants.list_received() == []
    with pytest.raises(NotFound):
        company["mira"].sharing.grants.decline(given.grant.grant_id)


def test_another_copy_of_the_repository_is_the_same_project(company: Company) -> None:
    company.say("ada", "The staging server of the harbour listens on port 7070", project="/home/ada/orchard")
    company["ada"].sharing.share("@orchard", "project", "/home/ada/orchard", since_at=BEGIN)
    question = "which port does the staging server of the harbour listen on?"
    assert company.recalled("bob", question, "/srv/bob/orchard")
    assert not company.recalled("bob", question, "/srv/bob/meadow")
    assert not company.recalled("eve", question, "/home/eve/orchard")


def test_list_from_elsewhere_sets_the_members(company: Company) -> None:
    teams = company["mira"].sharing.teams
    change = teams.set_members("orchard", ["bob", "eve"])
    assert (change.added, change.removed) == (("eve",), ("ada",))
    members = teams.get_team("orchard").members
    assert [(member.user, member.is_reviewer, member.added_by) for member in members] == [
        ("bob", True, "mira"), ("eve", False, "mira"),
    ]  # fmt: skip
    with pytest.raises(UsageError):
        teams.set_members("orchard", [])
    with pytest.raises(TeamMissing):
        company["ada"].sharing.share("@meadow", "tag", "sea")
    ops = [type(change.op).__name__ for change in teams.list_changes("orchard")]
    assert len(ops) == 5 and {change.op.by for change in teams.list_changes("orchard")} == {"mira"}


def test_making_a_team_again_changes_no_rule(company: Company) -> None:
    """A script that sets up a home runs twice: what people shared must not stay for that when they leave."""
    shown = [
        CliRunner().invoke(cli, ["team", "create", "meadow", *words, "--json", "--home", str(company.place)]).stdout
        for words in (["--when-leaving", "end"], [], ["--when-leaving", "keep"], [])
    ]
    assert [json.loads(line)["result"]["keeps"] for line in shown] == [False, False, True, True]
    refused = CliRunner().invoke(cli, ["team", "leave", "ada", "--erase-private", "--home", str(company.place)])
    assert refused.exit_code == 2 and "add --yes" in refused.output and "--dry-run" not in refused.output


def test_two_admins_set_the_members_at_once(company: Company) -> None:
    """Each list is set as a whole: nobody is told that somebody is no member, and no half of a list is left."""
    lists = (["bob"], ["ada", "carl"], ["eve"])
    homes = [perdure.open(company.place, user="mira") for _ in lists]

    def set_often(home: Home, names: list[str]) -> None:
        for _ in range(10):
            home.sharing.teams.set_members("orchard", names)

    with ThreadPoolExecutor(len(lists)) as pool:
        list(pool.map(set_often, homes, lists))
    members = [member.user for member in company["mira"].sharing.teams.get_team("orchard").members]
    assert members in lists
    for home in homes:
        home.close()


def test_list_with_other_letters_is_told(company: Company, tmp_path: Path) -> None:
    """A forge writes the name of a user with a capital: they would lose their right, and nobody would say why."""
    (tmp_path / "list").write_text("Bob\nada\n")
    words = ["team", "members", "orchard", "--set", str(tmp_path / "list"), "--home", str(company.place)]
    shown = CliRunner().invoke(cli, words)
    assert "no user Bob yet" in shown.output and "It has bob: upper and lower case matter." in shown.output


# notes ---------------------------------------------------------------------------------------------------------


def propose(company: Company, text: str, user: str = "ada") -> str:
    memory = company[user].remember(text, path="buoy/colour", cwd="/home/ada/orchard")
    return company[user].sharing.share("@orchard", "memory", memory.memory_id).grant.grant_id


def states(company: Company, user: str) -> list[tuple[str, str]]:
    notes = company[user].sharing.list_notes("orchard")
    return [(note.state, note.memory.text if note.memory else "") for note in notes]


def test_note_is_read_only_after_a_review(company: Company) -> None:
    company["mira"].sharing.teams.add("orchard", "eve")
    note_id = propose(company, f"The buoy is green, its key is {KEY}")
    assert company.found("bob") == set() == company.found("eve")
    assert states(company, "eve") == [] and states(company, "mira") == []
    ((state, text),) = states(company, "bob")
    assert state == "proposed" and KEY not in text
    for user in ("ada", "eve", "mira"):
        with pytest.raises((UsageError, NotFound)):
            company[user].sharing.teams.review(note_id, is_accepted=True)
    reviewed = company["bob"].sharing.teams.review(note_id, is_accepted=True)
    assert reviewed.review is not None and reviewed.review.reviewer == "bob"
    assert [hit.memory.shared_by for hit in company["eve"].memories.search("buoy")] == ["ada"]
    assert company.recalled("eve", "what colour has the buoy?", "/home/eve/orchard")
    company["bob"].sharing.teams.review(note_id, is_accepted=False)
    assert company["eve"].memories.search("buoy") == [] and states(company, "eve") == []
    assert [state for state, _ in states(company, "ada")] == ["rejected"]


def test_new_words_of_a_note_need_a_new_review(company: Company) -> None:
    note_id = propose(company, "The buoy is green")
    company["bob"].sharing.teams.review(note_id, is_accepted=True)
    company["ada"].remember("The buoy is blue now", path="buoy/colour", cwd="/home/ada/orchard")
    assert [hit.memory.text for hit in company["bob"].memories.search("buoy")] == ["The buoy is green"]
    company["ada"].sharing.grants.revoke(note_id)
    assert company["bob"].memories.search("buoy") == [] and states(company, "bob") == []
    assert [state for state, _ in states(company, "ada")] == ["retracted"]


def test_reviewer_cannot_accept_their_own_note(company: Company) -> None:
    note_id = propose(company, "The buoy is green", "bob")
    with pytest.raises(UsageError, match="another reviewer"):
        company["bob"].sharing.teams.review(note_id, is_accepted=True)


# who may see what ----------------------------------------------------------------------------------------------


def test_picture_names_the_origin_of_each_right(company: Company) -> None:
    company.say("ada", "the buoy was red", project="/home/ada/orchard")
    company["ada"].sharing.share("@orchard", "project", "/home/ada/orchard")
    company["ada"].sharing.share("eve", "tag", "sea")
    picture = company["mira"].sharing.draw_access(is_admin=True)
    assert [column.key for column in picture.columns] == ["project orchard", "tag sea"]
    rows = {row.user: row for row in picture.rows}
    assert rows["mira"].is_admin and rows["mira"].rights == {} and rows["bob"].teams == ("orchard",)
    (right,) = rows["bob"].rights["project orchard"]
    assert (right.kind, right.other, right.team) == ("reads", "ada", "orchard")
    assert [right.kind for right in rows["ada"].rights["tag sea"]] == ["shares"]
    own = company["bob"].sharing.draw_access(is_admin=False)
    assert [column.key for column in own.columns] == ["project orchard"]  # what ada shares with eve is not bob's
    assert [row.user for row in own.rows] == ["ada", "bob"]
    assert company["mira"].sharing.draw_access(is_admin=False).columns == ()


# a person who leaves -------------------------------------------------------------------------------------------


def answers(company: Company, user: str) -> dict[str, Any]:
    home = company[user]
    return {
        "search": sorted(hit.turn_id for hit in home.search("buoy harbour", limit=100).hits),
        "memories": sorted(memory.text for memory in home.memories.shared.list_memories(every=True)),
        "recall": company.recalled(user, "what colour has the buoy of the harbour?", "/x/orchard"),
        "runs": sorted(node.run.run_id for node in home.runs.forest()),
    }


def settle(company: Company) -> dict[str, str]:
    """Ada works in two projects, shares one with the team and one with eve; a note of hers rests on a private turn."""
    company["mira"].sharing.teams.add("orchard", "eve")
    company.say("ada", "the buoy of the harbour is red", project="/home/ada/orchard")
    private = company.say("ada", "the wombat is a secret of mine", project="/home/ada/diary", tags=("sea",))
    company.say("bob", "bob knows the harbour buoy", project="/home/bob/orchard")
    given = company["ada"].sharing.share("@orchard", "project", "/home/ada/orchard", since_at=BEGIN)
    direct = company["ada"].sharing.share("eve", "tag", "sea")
    draft = MemoryDraft("The harbour buoy is painted each May", path="buoy/paint", project="/home/ada/orchard",
                        how="mined", sources=(Span(private, 0, 40),))  # fmt: skip
    memory = company["ada"].memories.keep(draft).memory
    note_id = company["ada"].sharing.share("@orchard", "memory", memory.memory_id).grant.grant_id
    company["bob"].sharing.teams.review(note_id, is_accepted=True)
    company["ada"].remember("I dislike wombats", path="user/animals")
    company["ada"].floor.note("Call the wombat keeper")
    return {"team": given.grant.grant_id, "direct": direct.grant.grant_id, "note": note_id}


@pytest.mark.parametrize("erases", [False, True])
def test_leaving_changes_nobody_elses_answers(company: Company, erases: bool, grep: Any) -> None:
    ids = settle(company)
    _, secret = company["ada"].sharing.machines.register("ada", "laptop")
    company["eve"].sharing.grants.decline(ids["direct"])  # so that only the team's right is left
    before = {user: answers(company, user) for user in ("bob", "eve", "mira")}
    assert before["eve"]["recall"] and before["eve"]["memories"] and before["bob"]["search"]
    left = company["ada"].sharing.leave()
    assert left.machines == ("laptop",) and left.teams == ("orchard",)
    assert {grant.grant_id for grant in left.kept} == {ids["team"], ids["note"]}
    if erases:
        n_turns, n_memories = company["ada"].forgetting.erase_private(left.kept)
        assert n_turns and n_memories
        assert grep(company.place, b"wombat") == []
    assert LocalAuthority(company.place, ["mira"]).identify(secret) is None
    assert {user: answers(company, user) for user in ("bob", "eve", "mira")} == before
    assert company["ada"].sharing.leave().machines == ()
    with pytest.raises(UsageError, match="left this home"):
        company["mira"].sharing.machines.register("ada", "phone")
    company["mira"].sharing.teams.record_return("ada")
    company["mira"].sharing.machines.register("ada", "phone")


def test_who_left_is_let_in_by_nothing_but_a_return(company: Company, tmp_path: Path) -> None:
    """The list of the forge has them for another week, and cron sets it every night."""
    company["ada"].sharing.leave()
    teams = company["mira"].sharing.teams
    change = teams.set_members("orchard", ["ada", "bob", "eve"])
    assert (change.added, change.removed, change.absent) == (("eve",), (), ("ada",))
    with pytest.raises(UsageError, match="perdure team return ada"):
        teams.add("orchard", "ada")
    with pytest.raises(UsageError, match="perdure team return ada"):
        company["bob"].sharing.share("ada", "tag", "sea")
    (tmp_path / "list").write_text("ada\nbob\n")
    words = ["team", "members", "orchard", "--set", str(tmp_path / "list"), "--home", str(company.place)]
    assert "Not added, because they left this home: ada." in CliRunner().invoke(cli, words).output
    teams.record_return("ada")
    assert teams.add("orchard", "ada").find_member("ada")


def test_nothing_is_registered_beside_a_departure(company: Company) -> None:
    """A machine of the person asks for another one while they are let go."""
    settle(company)
    machines, has_begun, has_left = company["mira"].sharing.machines, threading.Event(), threading.Event()

    def register_often() -> None:
        with contextlib.suppress(UsageError):
            for number in itertools.count():
                machines.register("ada", f"machine-{number}")
                has_begun.set()
                if has_left.is_set():
                    return

    thread = threading.Thread(target=register_often)
    thread.start()
    has_begun.wait(10)
    company["ada"].sharing.leave()
    has_left.set()
    thread.join(10)
    assert machines.list_machines("ada") == []


def test_leaving_ends_what_a_team_does_not_keep(company: Company) -> None:
    ids = settle(company)
    company["mira"].sharing.teams.set_rule("orchard", keeps=False)
    left = company["ada"].sharing.leave()
    assert left.kept == () and {grant.grant_id for grant in left.ended} == set(ids.values())
    assert company.found("eve") == set()
    assert company["eve"].memories.shared.list_memories(every=True) == []


def test_erased_reviewer_leaves_the_notes_they_accepted(company: Company, grep: Any) -> None:
    settle(company)
    company["bob"].forgetting.erase_user()
    (note,) = company["eve"].sharing.list_notes("orchard")
    assert note.state == "accepted" and note.record.review is not None and note.record.review.reviewer == ""
    assert [member.user for member in company["mira"].sharing.teams.get_team("orchard").members] == ["ada", "eve"]
    assert grep(company.place / "archive" / "journal", b'"bob"') == []


def test_home_user_cannot_leave(company: Company) -> None:
    with pytest.raises(UsageError, match="own user"):
        company["mira"].sharing.leave()
