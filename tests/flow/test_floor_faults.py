"""The floor where things go wrong: disks, clocks, links, giants, edits in the wrong moment, merges in any order.

Nothing that was acknowledged is lost, no page is empty, and what cannot be a page is kept and said.
"""

import itertools
import os
import resource
import time
from datetime import UTC, datetime, timedelta

import pytest

from perdure.errors import EditRefused, NotFound
from perdure.floor import pages, state, working_copy

LATER = datetime(2036, 1, 1, tzinfo=UTC)


def age(path, seconds=60):
    """Let a file be as if nobody had touched it for a while."""
    at = time.time() - seconds
    os.utime(path, (at, at))


def said_in(floor, name):
    return [floor.read_version(name, version.event) for version in floor.list_versions(name)]


# clocks -------------------------------------------------------------------------------------------------------


def test_a_clock_that_jumps_back_loses_no_edit(opened):
    floor = opened().floor
    floor.write("notes", "one")
    floor.now = lambda: LATER
    floor.write("notes", "two")
    floor.now = lambda: datetime.now(UTC) - timedelta(hours=1)
    (floor.folder / "notes.md").write_text("one\n")  # said before, and meant now
    assert floor.read("notes") == "one\n"
    floor.write("notes", "three")
    assert said_in(floor, "notes") == ["one\n", "two\n", "one\n", "three\n"]


def test_restored_backup_file_counts_as_an_edit(opened):
    floor = opened().floor
    floor.write("notes", "one")
    path = floor.folder / "notes.md"
    path.with_suffix(".bak").write_text("one\n")
    age(path.with_suffix(".bak"), 3600)
    floor.write("notes", "two")
    path.with_suffix(".bak").rename(path)
    assert floor.read("notes") == "one\n" and floor.list_versions("notes")[-1].by == "hand"


# what is no plain file ----------------------------------------------------------------------------------------


def test_link_stays_and_its_target_gets_the_text(opened, tmp_path):
    floor = opened().floor
    target = tmp_path / "dotfiles" / "my notes[1].md"
    target.parent.mkdir()
    target.write_text("from my dotfiles\n")
    floor.folder.mkdir(parents=True)
    link = floor.folder / "notes.md"
    link.symlink_to(target)
    assert floor.read("notes") == "from my dotfiles\n"
    floor.write("notes", "two", by="agent")
    assert link.is_symlink() and target.read_text() == "two\n"
    target.write_text("a hand\n")
    assert floor.read("notes") == "a hand\n"
    target.unlink()
    assert floor.read("notes") == "a hand\n" and target.read_text() == "a hand\n" and link.is_symlink()
    floor.remove("notes")
    assert not link.is_symlink() and target.read_text() == "a hand\n"
    assert said_in(floor, "notes") == ["from my dotfiles\n", "two\n", "a hand\n", ""]


@pytest.mark.parametrize("kind", ["folder", "fifo", "into nowhere", "loop", "device", "below a file"])
def test_folder_or_link_at_a_page_is_left_and_reported(opened, tmp_path, kind):
    floor = opened().floor
    floor.write("diary/2026-11-21", "one")
    path = floor.folder / "diary" / "2026-11-21.md"
    path.unlink()
    if kind == "folder":
        path.mkdir()
        (path / "mine").write_text("x")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "below a file":
        for found in path.parent.iterdir():
            found.unlink()
        path.parent.rmdir()
        path.parent.write_text("x")
    else:
        path.symlink_to({"into nowhere": tmp_path / "a" / "b", "loop": path, "device": "/dev/zero"}[kind])
    before = os.lstat(path.parent).st_ino if kind == "below a file" else os.lstat(path).st_ino
    for _ in range(3):
        assert floor.read("diary/2026-11-21") == "one\n"
    floor.write("diary/2026-11-21", "two")
    assert floor.read("diary/2026-11-21") == "two\n"
    assert before == (os.lstat(path.parent).st_ino if kind == "below a file" else os.lstat(path).st_ino)
    assert len(floor.alerts) == 1 and "the text in the journal is used" in floor.alerts[0]
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("when", ["found", "displaced"])
def test_a_giant_is_kept_aside_and_never_read(opened, when):
    home = opened()
    floor = home.floor
    floor.write("notes", "one")
    path = floor.folder / "notes.md"
    with path.open("wb") as file:
        file.write(b"mine\n")
        file.truncate(100_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert floor.read("notes") == "one\n" and path.stat().st_size == 100_000_000, "an editor may be at it"
    if when == "displaced":
        floor.write("notes", "two")
        working_copies = list(floor.folder.glob(".notes.md.*.displaced"))
        assert any(found.stat().st_size == 100_000_000 for found in working_copies)
        for found in working_copies:
            floor._take_displaced("notes.md", Aged.of(found))
    else:
        age(path)
        assert floor.read("notes") == "one\n" == path.read_text()
    (kept,) = floor.folder.glob("notes.md.refused-*")
    assert kept.stat().st_size == 100_000_000 and "100000000 bytes" in floor.alerts[0] and len(floor.alerts) == 1
    assert sum(found.stat().st_size for found in home.journal().list_files()) < 5000
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 50_000_000


class Aged(working_copy.WorkingCopy):
    """What was displaced a while ago."""

    @classmethod
    def of(cls, path):
        found = working_copy.read_copy(path)
        return working_copy.WorkingCopy(path, found.text, found.why, mark=found.mark)


def test_line_endings_and_byte_order_marks_are_no_edit(opened):
    floor = opened().floor
    floor.write("notes", "one\ntwo")
    path = floor.folder / "notes.md"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert floor.read("notes") == "one\ntwo\n" and len(floor.list_versions("notes")) == 1
    assert path.read_bytes().startswith(b"\xef\xbb\xbf"), "as its owner's editor wrote it"


@pytest.mark.parametrize(
    "name",
    ["../notes.md", "..", "/etc/passwd", "diary/../notes.md", "diary/../../x.md", "skills/../SKILL.md",
     "skills/a/b/SKILL.md", "notes.md\0", "notes.md\n", "diary/2026-11-21.md/..", "", ".lock", ".notes.md.noted"],
)  # fmt: skip
def test_no_page_name_leaves_the_folder(opened, name):
    floor = opened().floor
    for call in (
        floor.read,
        floor.list_versions,
        floor.remove,
        lambda n: floor.write(n, "x"),
        lambda n: floor.propose(n, "x"),
    ):
        with pytest.raises(NotFound):
            call(name)


# edits in the wrong moment ------------------------------------------------------------------------------------


def test_edit_in_a_replaced_file_is_kept(opened):
    floor = opened().floor
    floor.write("notes", "one")
    age(floor.folder / "notes.md", 3600)
    with (floor.folder / "notes.md").open("r+") as editor:
        floor.write("notes", "two")
        editor.write("by hand\n")
    assert floor.read("notes") == "two\n"
    assert said_in(floor, "notes") == ["one\n", "two\n", "by hand\n", "two\n"]


def test_page_is_not_read_while_half_written(opened):
    floor = opened().floor
    floor.write("notes", "one")
    path = floor.folder / "notes.md"
    child = os.fork()
    if child == 0:
        with path.open("w") as file:
            for n in range(8):
                file.write(f"line {n}\n")
                file.flush()
                time.sleep(0.01)
        os._exit(0)
    while path.read_text() == "one\n":
        time.sleep(0.001)
    assert floor.read("notes") in ("one\n", "".join(f"line {n}\n" for n in range(8)))
    os.waitpid(child, 0)
    assert floor.read("notes") == "".join(f"line {n}\n" for n in range(8))
    assert len(floor.list_versions("notes")) == 2


def test_half_written_file_of_a_killed_writer_is_no_edit(opened):
    floor = opened().floor
    floor.write("notes", "one")
    (floor.folder / ".notes.md.1-abcdef01.tmp").write_text("tw")
    floor.write("notes", "two")
    assert said_in(floor, "notes") == ["one\n", "two\n"]
    assert not list(floor.folder.glob("*.tmp"))


def test_an_approval_is_one_step_and_only_one(opened):
    home = opened()
    home.floor.write("notes", "one")
    wanted = home.floor.propose("notes", "one\ntwo", by="agent", why="more")
    n_before = len(home.journal().read(type_="floor"))
    home.floor.approve(wanted.id)
    assert len(home.journal().read(type_="floor")) == n_before + 1
    assert home.floor.read("notes") == "one\ntwo\n" and not home.floor.list_proposals()
    for call in (home.floor.approve, home.floor.reject):
        with pytest.raises(EditRefused, match="already approved"):
            call(wanted.id)


def test_a_long_history_is_all_in_the_journal(opened):
    home = opened()
    n = state.MAX_VERSIONS + 20
    for at in range(n):
        home.floor.write("notes", f"text {at}")
    versions = home.floor.list_versions("notes")
    assert len(versions) == n and not any(version.unseen for version in versions)
    assert home.floor.read_version("notes", versions[3].event) == "text 3\n"
    kept = home.floor.load_state().pages["notes.md"].versions
    assert kept == versions[-state.MAX_VERSIONS :]


def test_lost_or_broken_state_is_rebuilt(opened):
    home = opened()
    home.floor.write("notes", "one")
    (kept,) = (home.path / "run").glob("floor-*.json")
    for broken in (None, b"", b"{", kept.read_bytes()[:-20], b'{"format": 1}'):
        kept.unlink() if broken is None else kept.write_bytes(broken)
        assert opened().floor.read("notes") == "one\n"
        assert kept.stat().st_size > 100


# merges -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
def test_homes_that_merge_in_any_order_hold_the_same(opened, order):
    """Three homes with edits of every kind, some by hand and unread, each taken by each in an order of its own."""
    homes = {name: opened(name) for name in "abc"}
    for name, home in homes.items():
        floor = home.floor
        floor.write("notes", f"notes of {name}")
        floor.add_card(f"a card of {name}")
        floor.change_card(floor.add_card(f"another of {name}").id, f"changed in {name}")
        floor.remove_card(floor.add_card(f"a third of {name}").id)
        floor.propose("system", f"You are {name}. " * 20)
        floor.allow(f"allowed by {name}", location="notes.md")
        (floor.folder / "core.md").write_text(f"by hand in {name}\n")
        (floor.folder / "notes.md").write_text(f"notes by hand in {name}\n")
    homes["b"].floor.reject(homes["b"].floor.list_proposals()[0].id)
    homes["c"].floor.approve(homes["c"].floor.list_proposals()[0].id)
    for name in order:
        homes[name].floor.read("notes")
        homes[name].floor.read("core")
    for _ in range(2):
        for one in order:
            for other in order:
                if one != other:
                    homes[one].upkeep.merge(homes[other].path)
                    homes[one].floor.load_state()
    for home in homes.values():
        for page in home.floor.list_pages():
            home.floor.read(page)
    known = [home.floor.load_state() for home in homes.values()]
    assert known[0] == known[1] == known[2] == opened("a").floor.load_state()
    assert known[0] == state.replay(homes["a"].journal().read(type_="floor")).agents["default"]
    last = order[-1]
    for home in homes.values():
        assert home.floor.read("core") == f"by hand in {last}\n" == (home.floor.folder / "core.md").read_text()
        assert home.floor.read("notes") == f"notes by hand in {last}\n"
        assert len(home.floor.list_cards()) == 6 and len(home.floor.list_proposals()) == 1
        assert sorted(said_in(home.floor, "core")) == [f"by hand in {name}\n" for name in "abc"]


def test_pages_outside_the_layers_cost_a_session_nothing(opened):
    home = opened()
    for n in range(1, 20):
        home.floor.write(f"diary/2026-01-{n:02d}", f"day {n}")
    (home.floor.folder / "diary" / "2026-01-05.md").write_text("by hand\n")
    home.floor.layers(now=datetime(2026, 1, 19, 12, tzinfo=UTC))
    assert len(home.floor.load_state().pages["diary/2026-01-05.md"].versions) == 1
    assert home.floor.read("diary/2026-01-05") == "by hand\n"


def test_size_limit_applies_to_hand_edits(opened):
    floor = opened().floor
    floor.write("notes", "one")
    (floor.folder / "notes.md").write_text("x" * pages.MAX_BYTES)
    assert floor.read("notes") == "x" * pages.MAX_BYTES


def test_a_rewritten_journal_is_noticed_under_the_same_number(opened):
    home = opened()
    home.floor.write("notes", "one secret line that goes")
    home.floor.write("notes", "two")
    (path,) = home.journal().list_files()

    def without(event):
        return {**event.data, "text": "gone\n"} if "secret" in event.data.get("text", "") else None

    home.floor.load_state()
    home.journal().rewrite("floor", without)
    rewritten = path.read_bytes()
    with path.open("r+b") as file:  # as a file system does that gives a freed number to the next file
        file.truncate(0)
        file.write(rewritten)
    for n in range(20):
        home.floor.write("core", f"more {n}")
    assert home.floor.list_versions("notes")[0].sha == opened().floor.list_versions("notes")[0].sha
    assert home.floor.read_version("notes", home.floor.list_versions("notes")[0].event) == "gone\n"
