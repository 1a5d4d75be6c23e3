"""Forget and the floor: what came from a turn goes from every state of every page, and nothing else goes."""

import json
import os
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

import perdure
from perdure.archive import forget as forgetting
from perdure.connections import utc_now
from perdure.errors import NotFound
from perdure.floor import forget as floor_forget
from perdure.floor import working_copy
from perdure.floor.notes import parse_line
from perdure.surfaces.cli import cli
from perdure.types import Span

NEEDLE = b"marmalade"
WORDS = "I prefer marmalade over jam"


def lines_of(home, name="notes"):
    return [parse_line(raw).words for raw in home.floor.read(name).splitlines()]


def say(home, message, text, session, minute=0):
    """A turn in a session of its own, and where it lies."""
    raw = message("user", text, minute)
    run = home.capture(raw, runtime="messages", session=session).run_id
    home.upkeep.catch_up()
    return Span(run, 0, len(raw))


def _quotes(home, doomed):
    return [(line.name, line.line) for line in home.forgetting.floor_lines_quoting(doomed)]


def forget(home, query="marmalade"):
    home.forgetting.apply(home.forgetting.plan([hit.turn_id for hit in home.search(query).hits]))


@pytest.fixture
def kept(home, message):
    """Three things said, the second of which is to be forgotten, and a note behind them."""
    say(home, message, "Always sign your commits", "a", 0)
    say(home, message, WORDS, "b", 1)
    say(home, message, "we use SQLite in WAL mode, not Postgres", "c", 2)
    home.floor.note("Mira knows the tariff")
    return home


def test_forgotten_turn_is_removed_from_every_page_state(kept, grep):
    assert WORDS in lines_of(kept) and len(grep(kept.path, NEEDLE)) > 3
    before = kept.floor.list_versions("notes")
    forget(kept)
    assert grep(kept.path, NEEDLE) == []
    assert lines_of(kept) == [
        "Always sign your commits",
        "we use SQLite in WAL mode, not Postgres",
        "Mira knows the tariff",
    ]
    after = kept.floor.list_versions("notes")
    assert [version.event for version in after] == [version.event for version in before]
    assert not any(version.unseen for version in after)
    assert kept.upkeep.verify().ok and list(kept.journal().find_damage()) == []
    kept.upkeep.catch_up()
    assert grep(kept.path, NEEDLE) == []


def test_forgotten_memory_removes_its_line(kept, grep):
    (memory,) = [one for one in kept.memories.list_memories() if "marmalade" in one.text]
    kept.forgetting.apply([], memories=[memory.memory_id])
    assert WORDS not in lines_of(kept)
    left = {path.split("/")[0] for path in grep(kept.path, NEEDLE)}
    assert left - {"index-1.db"} == {"archive"}, "the turn itself stays"
    assert not [path for path in grep(kept.path, NEEDLE) if "journal" in path]


def test_note_stated_twice_stays_until_both_turns_are_forgotten(kept, message):
    """The memory goes with either turn, and what is left of its sources is looked at again."""
    say(kept, message, WORDS, "d", 60)
    (first,) = [hit for hit in kept.search("marmalade").hits if hit.conversation == "b"]
    kept.forgetting.apply(kept.forgetting.plan([first.turn_id]))
    assert lines_of(kept).count(WORDS) == 1
    forget(kept)
    assert WORDS not in lines_of(kept)


def test_forgotten_note_may_be_stated_again(kept, message, grep):
    forget(kept)
    say(kept, message, WORDS, "again", 600)
    assert lines_of(kept)[-1] == WORDS
    say(kept, message, "please forget the heron", "e", 601)
    forget(kept, "heron")
    assert lines_of(kept)[-1] == WORDS, "what was said anew outlives the next forgetting"
    assert grep(kept.path, b"heron") == []


def test_hand_edit_does_not_keep_a_forgotten_line(kept, grep):
    """The mark tells from where an edited line came; edits beside it stay, also one that nobody has read yet."""
    path = kept.floor.folder / "notes.md"
    path.write_text(path.read_text().replace("over jam", "over jam, on toast") + "by hand\n")
    assert "by hand" in lines_of(kept)
    path.write_text(path.read_text() + "unread\n")
    forget(kept)
    assert grep(kept.path, NEEDLE) == [] and grep(kept.path, b"on toast") == []
    assert lines_of(kept)[-2:] == ["by hand", "unread"]


def test_files_set_aside_are_forgotten_too(kept, grep):
    path = kept.floor.folder / "notes.md"
    path.write_bytes(path.read_bytes() + b"\xff\xfe")
    os.utime(path, (time.time() - 60,) * 2)
    kept.floor.read("notes")
    assert len(list(path.parent.glob("notes.md.refused-*"))) == 1
    forget(kept)
    assert grep(kept.path, NEEDLE) == []


def test_derived_text_is_gone_and_the_text_before_it_counts(kept, message, grep):
    """recent.md: one text of other sources, one of the turn among others, one by hand on top of that."""
    floor = kept.floor
    other = say(kept, message, "The heron is back", "h", 5)
    doomed = say(kept, message, "There is marmalade in the larder", "m", 6)
    floor.write("recent", "# Lately\nThe heron is back.", by="model", sources=[other], cursor=1)
    first = floor.list_versions("recent")[-1]
    floor.write(
        "recent", "# Lately\nMarmalade was found, and a marmalade spoon.", by="model", sources=[other, doomed], cursor=2
    )
    second = floor.list_versions("recent")[-1]
    forget(kept)
    assert grep(kept.path, NEEDLE) == [] and grep(kept.path, b"Marmalade") == []
    assert floor.read("recent") == "# Lately\nThe heron is back.\n"
    assert (floor.folder / "recent.md").read_text() == floor.read("recent")
    assert [version.forgotten for version in floor.list_versions("recent")] == [False, True]
    assert floor.load_state().pages["recent.md"].cursor == 1 and floor.read_version("recent", second.event) == ""
    made = floor.write("recent", "# Lately\nNothing new.", by="model", sources=[other], cursor=3)
    assert not made.unseen and floor.read_version("recent", first.event).startswith("# Lately\nThe heron")


def test_a_person_s_lines_outlive_the_text_they_were_added_to(kept, message, grep):
    doomed = say(kept, message, "There is marmalade in the larder", "m", 6)
    kept.floor.write("diary/2026-01-15", "Marmalade was found.\nA quiet day.", by="rules", sources=[doomed])
    page = kept.floor.folder / "diary" / "2026-01-15.md"
    page.write_text(page.read_text() + "I liked it.\n")
    assert kept.floor.list_versions("diary/2026-01-15")[-1].by == "hand"
    forget(kept)
    assert grep(kept.path, b"Marmalade") == [] and kept.floor.read("diary/2026-01-15") == "I liked it.\n"


def test_the_only_text_of_a_page_takes_the_page_along(kept, message, grep):
    doomed = say(kept, message, "There is marmalade in the larder", "m", 6)
    kept.floor.write("recent", "Marmalade was found.", by="model", sources=[doomed])
    forget(kept)
    assert grep(kept.path, b"Marmalade") == []
    assert kept.floor.read("recent") == "" and "recent.md" not in kept.floor.list_pages()
    assert kept.floor.write("recent", "Nothing.", by="model").by == "model"


def test_cards_and_proposals_are_forgotten(kept, message, grep):
    doomed = say(kept, message, "There is marmalade in the larder", "m", 6)
    kept.floor.add_card("The larder holds marmalade", by="agent", sources=[doomed])
    stays = kept.floor.add_card("Ask before you push")
    kept.floor.change_card(kept.floor.list_cards()[0].id, "The larder holds marmalade, two jars")
    kept.floor.propose("notes", kept.floor.read("notes") + "- more\n", why="tidier")
    forget(kept)
    assert grep(kept.path, NEEDLE) == []
    assert kept.floor.list_cards() == [stays]
    (wanted,) = kept.floor.list_proposals()
    kept.floor.approve(wanted.id)
    assert lines_of(kept)[-1] == "more"


def test_interrupted_forgetting_is_finished_at_the_next_opening(kept, grep):
    """First with nothing done but the tombstones, then with the working copy clean and the journal not."""
    path, other = kept.path, kept.floor.folder / "notes.md"
    doomed = kept.forgetting.plan([hit.turn_id for hit in kept.search("marmalade").hits])
    forgetting.record_tombstones(kept.journal(), doomed, now=utc_now())
    other.write_text("\n".join(raw for raw in other.read_text().splitlines() if "marmalade" not in raw) + "\n")
    kept.close()
    with perdure.open(path, user="ada") as again:
        assert grep(path, NEEDLE) == []
        assert "we use SQLite in WAL mode, not Postgres" in lines_of(again) and WORDS not in lines_of(again)


def test_forgetting_twice_changes_nothing(kept):
    forget(kept)
    before = {path: path.read_bytes() for path in kept.path.rglob("*.jsonl")}
    gone = forgetting.collect_forgotten(kept.archive, kept.journal())
    floor_forget.apply_tombstones(kept.journal(), gone, lambda _: kept.floor.folder)
    assert {path: path.read_bytes() for path in kept.path.rglob("*.jsonl")} == before


@pytest.mark.parametrize("forgets_first", [True, False])
def test_merged_home_restores_no_forgotten_line(opened, message, grep, forgets_first):
    """Both noted it; one forgets it, before or after the other's texts come in; the other adds a line meanwhile."""
    a, b = opened("a"), opened("b")
    for home in (a, b):
        say(home, message, WORDS, "s", 1)
    a.upkeep.merge(b.path)
    b.upkeep.merge(a.path)
    if forgets_first:
        forget(a)
        b.floor.note("Mira knows the tariff")
        a.upkeep.merge(b.path)
    else:
        b.floor.note("Mira knows the tariff")
        a.upkeep.merge(b.path)
        forget(a)
    b.upkeep.merge(a.path)
    for home in (a, b):
        assert grep(home.path, NEEDLE) == []
        assert lines_of(home) == ["Mira knows the tariff"]


def test_two_homes_that_forget_different_lines_both_lose_both(opened, message, grep):
    a, b = opened("a"), opened("b")
    for n, text in enumerate((WORDS, "I prefer Helix over vim", "Always sign your commits")):
        say(a, message, text, f"s{n}", n)
    b.upkeep.merge(a.path)
    forget(a)
    forget(b, "Helix")
    a.upkeep.merge(b.path)
    b.upkeep.merge(a.path)
    for home in (a, b):
        assert grep(home.path, NEEDLE) == [] and grep(home.path, b"Helix") == []
        assert lines_of(home) == ["Always sign your commits"]


def test_hand_written_line_is_reported_and_can_be_forgotten(kept, message, grep):
    say(kept, message, "The key of the shed hangs behind the door of the larder", "k", 7)
    kept.floor.write("core", "# House\n- the key of the shed hangs behind the door\n- A second line")
    doomed = kept.forgetting.plan([hit.turn_id for hit in kept.search("shed").hits])
    assert _quotes(kept, doomed) == [("core.md", "- the key of the shed hangs behind the door")]
    kept.forgetting.apply(doomed)
    assert len(grep(kept.path, b"behind the door")) >= 2
    kept.floor.forget_line("core", "the key of the shed hangs behind the door")
    assert grep(kept.path, b"behind the door") == []
    assert kept.floor.read("core") == "# House\n- A second line\n"
    with pytest.raises(NotFound):
        kept.floor.forget_line("core", "no such line")
    path = kept.path
    kept.close()
    with perdure.open(path, user="ada") as again:
        assert again.floor.read("core") == "# House\n- A second line\n"
        again.floor.write("core", again.floor.read("core") + "- the key of the shed hangs behind the door\n")
        say(again, message, "please forget the heron", "e", 9)
        forget(again, "heron")
        assert len(lines_of(again, "core")) == 3, "who writes it again means it"


def test_forgotten_line_is_finished_at_opening_and_after_a_merge(opened, message, grep):
    a, b = opened("a"), opened("b")
    a.floor.note("The shed has a marmalade jar")
    b.upkeep.merge(a.path)
    floor_forget.record_line_tombstone(
        a.journal(), "default", "notes.md", "The shed has a marmalade jar", now=utc_now()
    )
    a.close()
    a = opened("a")
    assert grep(a.path, NEEDLE) == []
    b.floor.write("notes", b.floor.read("notes") + "- Mira knows")
    a.upkeep.merge(b.path)
    b.upkeep.merge(a.path)
    assert grep(a.path, NEEDLE) == grep(b.path, NEEDLE) == []
    assert lines_of(a) == lines_of(b) == ["Mira knows"]


def test_erase_takes_the_floor_along(opened, kept, message, grep):
    eve = opened("home", "eve")
    eve.floor.note("Eve likes marmalade")
    kept.floor.propose("notes", "- marmalade for all")
    kept.forgetting.erase_user()
    assert {path.split("/")[1] for path in grep(kept.path, b"armalade")} <= {"default~eve", "floor-eve.json", "journal"}
    assert kept.floor.read("notes") == "" and lines_of(eve) == ["Eve likes marmalade"]
    eve.forgetting.erase_user()
    assert grep(kept.path, b"armalade") == []


def test_command_names_lines_that_stay(kept, message):
    kept.floor.write("core", "- marmalade, never jam, says Ada of all people")
    say(kept, message, "marmalade, never jam, says Ada of all people", "k", 7)
    kept.close()
    env = {**os.environ, "PERDURE_HOME": str(kept.path), "HOME": str(kept.path.parent)}
    (kept.path / "config.toml").write_text('user = "ada"\n')
    words = ["forget", "--query", "never jam", "--yes", "--json"]
    program = [sys.executable, "-m", "perdure.surfaces.cli", *words]
    done = subprocess.run(program, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["result"]["left_on_floor"] == [
        {
            "page": "core.md",
            "line": "- marmalade, never jam, says Ada of all people",
            "command": "perdure floor forget core.md 'marmalade, never jam, says Ada of all people'",
        }
    ]


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_merged_forgetting_does_not_restore_an_old_text(opened, grep, order):
    a, b = opened("a"), opened("b")
    a.floor.write("notes", "# Notes\n- the marmalade key\n- tea is green\n")
    b.upkeep.merge(a.path)
    b.floor.write("notes", b.floor.read("notes") + "- b adds this\n")
    a.floor.forget_line("notes", "the marmalade key")
    a.floor.write("notes", "# Notes\n- the newest text\n")
    homes = [(b, a), (a, b)]
    for one, other in homes if order == "ab" else homes[::-1]:
        one.upkeep.merge(other.path)
        one.floor.read("notes")
    b.upkeep.merge(a.path)
    for home in (a, b):
        assert home.floor.read("notes") == "# Notes\n- the newest text\n"
        assert grep(home.path, NEEDLE) == []


def test_file_set_aside_for_a_removed_page_is_deleted(kept):
    kept.floor.write("core", "one")
    kept.floor.remove("core")
    (aside,) = kept.floor.folder.glob(".core.md.*.displaced")
    os.utime(aside, (1, 1))
    assert kept.floor.read("core") == ""
    time.sleep(max(0, working_copy.SETTLED_S - (time.time() - aside.stat().st_ctime) + 0.1))
    assert kept.floor.read("core") == "" and not aside.exists()


def test_words_of_removed_cards_and_proposals_are_forgotten(opened, grep):
    a, b = opened("a"), opened("b")
    gone = a.floor.add_card("The larder holds marmalade")
    stays = a.floor.add_card("Ask before you push")
    wanted = a.floor.propose("core", "# House\n- marmalade\n", why="the marmalade")
    a.floor.approve(wanted.id)
    a.floor.change_card(gone.id, "Two jars of marmalade")
    b.upkeep.merge(a.path)
    a.floor.remove_card(gone.id)
    a.floor.forget_item(gone.id)
    a.floor.forget_item(wanted.id)
    a.floor.forget_line("core", "marmalade")
    with pytest.raises(NotFound):
        a.floor.forget_item(gone.id)
    b.upkeep.merge(a.path)
    a.upkeep.merge(b.path)
    for home in (a, b):
        assert grep(home.path, NEEDLE) == []
        assert home.floor.list_cards() == [stays] and home.floor.read("core") == "# House\n"


def test_card_with_the_same_words_is_reported(kept, message):
    card = kept.floor.add_card("The key of the shed hangs behind the door")
    say(kept, message, "The key of the shed hangs behind the door", "k", 7)
    doomed = kept.forgetting.plan([hit.turn_id for hit in kept.search("shed").hits])
    assert (card.id, card.text) in _quotes(kept, doomed)


def test_the_command_forgets_a_line_and_a_card(tmp_path, grep):
    path = tmp_path / "home"
    env = {"PERDURE_HOME": str(path), "HOME": str(tmp_path)}

    def run(*words):
        return CliRunner().invoke(cli, ["floor", *words], env=env, prog_name="perdure")

    made = run("card", "Two jars of marmalade", "--json")
    card = json.loads(made.output)["result"]["card"]["id"]
    run("write", "core", "jars of marmalade")
    run("remove", "core")
    assert run("forget", "core", "jars", "of", "marmalade").exit_code == 2, "it asks"
    assert run("forget", "core", "no such line", "--yes").exit_code == 4
    assert run("forget", card, "words").exit_code == 2
    done = run("forget", "core", "jars", "of", "marmalade", "--yes", "--json")
    assert done.exit_code == 0 and json.loads(done.output)["result"]["name"] == "core.md", done.output
    assert run("forget", card, "--dry-run").exit_code == 0 and grep(path, NEEDLE)
    assert run("forget", card, "--yes").exit_code == 0
    assert grep(path, NEEDLE) == []


def test_erase_removes_a_link_and_leaves_its_target(kept, tmp_path):
    kept.floor.write("core", "one")
    target, folder = tmp_path / "mine", kept.floor.folder
    folder.rename(target)
    folder.symlink_to(target)
    assert kept.forgetting.linked_floors() == [target]
    kept.forgetting.erase_user()
    assert not folder.is_symlink() and (target / "core.md").exists()


def test_read_only_home_stores_nothing_of_its_floor(kept):
    kept.floor.write("core", "one")
    (record,) = (kept.path / "run").glob("floor-*.json")
    record.unlink()
    with perdure.open(kept.path, user="ada", read_only=True) as reader:
        assert reader.floor.read("core") == "one\n"
    assert not record.exists()
