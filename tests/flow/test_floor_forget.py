"""Forget and the floor: what came from a turn goes from every state of every page, and nothing else goes."""

import json
import os
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

import perdure
from perdure import forget as forgetting
from perdure.errors import NotFound
from perdure.floor import forget as floor_forget
from perdure.floor import working
from perdure.floor.notes import read
from perdure.surfaces.cli import cli
from perdure.types import Span

NEEDLE = b"marmalade"
WORDS = "I prefer marmalade over jam"


def lines_of(home, name="notes"):
    return [read(raw).words for raw in home.floor.read(name).splitlines()]


def say(home, message, text, session, minute=0):
    """A turn in a session of its own, and where it lies."""
    raw = message("user", text, minute)
    run = home.capture(raw, runtime="messages", session=session).run_id
    home.catch_up()
    return Span(run, 0, len(raw))


def forget(home, query="marmalade"):
    home.forget(home.doomed([hit.turn_id for hit in home.search(query).hits]))


@pytest.fixture
def kept(home, message):
    """Three things said, the second of which is to be forgotten, and a note behind them."""
    say(home, message, "Every commit must be signed", "a", 0)
    say(home, message, WORDS, "b", 1)
    say(home, message, "use SQLite WAL mode for database", "c", 2)
    home.note("Mira knows the tariff")
    return home


def test_a_turn_goes_from_every_state_of_the_page(kept, grep):
    assert WORDS in lines_of(kept) and len(grep(kept.path, NEEDLE)) > 3
    before = kept.floor.history("notes")
    forget(kept)
    assert grep(kept.path, NEEDLE) == []
    assert lines_of(kept) == [
        "Every commit must be signed",
        "use SQLite WAL mode for database",
        "Mira knows the tariff",
    ]
    after = kept.floor.history("notes")
    assert [version.event for version in after] == [version.event for version in before]
    assert not any(version.unseen for version in after)
    assert kept.verify().ok and list(kept.journal().damage()) == []
    kept.catch_up()
    assert grep(kept.path, NEEDLE) == []


def test_a_memory_takes_its_line_along(kept, grep):
    (memory,) = [one for one in kept.memories.listed() if "marmalade" in one.text]
    kept.forget([], memories=[memory.memory_id])
    assert WORDS not in lines_of(kept)
    assert {path.split("/")[0] for path in grep(kept.path, NEEDLE)} == {"archive", "index-1.db"}, (
        "the turn itself stays"
    )
    assert not [path for path in grep(kept.path, NEEDLE) if "journal" in path]


def test_what_was_said_twice_stays_noted(kept, message):
    """The memory goes with either turn, and what is left of its sources is looked at again."""
    say(kept, message, WORDS, "d", 60)
    (first,) = [hit for hit in kept.search("marmalade").hits if hit.conversation == "b"]
    kept.forget(kept.doomed([first.turn_id]))
    assert lines_of(kept).count(WORDS) == 1
    forget(kept)
    assert WORDS not in lines_of(kept)


def test_it_may_be_said_again(kept, message, grep):
    forget(kept)
    say(kept, message, WORDS, "again", 600)
    assert lines_of(kept)[-1] == WORDS
    say(kept, message, "please forget the heron", "e", 601)
    forget(kept, "heron")
    assert lines_of(kept)[-1] == WORDS, "what was said anew outlives the next forgetting"
    assert grep(kept.path, b"heron") == []


def test_a_hand_at_the_line_does_not_keep_it(kept, grep):
    """The mark tells from where an edited line came; edits beside it stay, also one that nobody has read yet."""
    path = kept.floor.folder / "notes.md"
    path.write_text(path.read_text().replace("over jam", "over jam, on toast") + "by hand\n")
    assert "by hand" in lines_of(kept)
    path.write_text(path.read_text() + "unread\n")
    forget(kept)
    assert grep(kept.path, NEEDLE) == [] and grep(kept.path, b"on toast") == []
    assert lines_of(kept)[-2:] == ["by hand", "unread"]


def test_what_was_put_aside_goes_too(kept, grep):
    path = kept.floor.folder / "notes.md"
    path.write_bytes(path.read_bytes() + b"\xff\xfe")
    os.utime(path, (time.time() - 60,) * 2)
    kept.floor.read("notes")
    assert len(list(path.parent.glob("notes.md.refused-*"))) == 1
    forget(kept)
    assert grep(kept.path, NEEDLE) == []


def test_a_text_that_rests_on_it_is_gone_and_the_last_one_before_counts(kept, message, grep):
    """recent.md: one text of other sources, one of the turn among others, one by hand on top of that."""
    floor = kept.floor
    other = say(kept, message, "The heron is back", "h", 5)
    doomed = say(kept, message, "There is marmalade in the larder", "m", 6)
    floor.write("recent", "# Lately\nThe heron is back.", by="model", sources=[other], cursor=1)
    first = floor.history("recent")[-1]
    floor.write(
        "recent", "# Lately\nMarmalade was found, and a marmalade spoon.", by="model", sources=[other, doomed], cursor=2
    )
    second = floor.history("recent")[-1]
    forget(kept)
    assert grep(kept.path, NEEDLE) == [] and grep(kept.path, b"Marmalade") == []
    assert floor.read("recent") == "# Lately\nThe heron is back.\n"
    assert (floor.folder / "recent.md").read_text() == floor.read("recent")
    assert [version.forgotten for version in floor.history("recent")] == [False, True]
    assert floor.known().pages["recent.md"].cursor == 1 and floor.said("recent", second.event) == ""
    made = floor.write("recent", "# Lately\nNothing new.", by="model", sources=[other], cursor=3)
    assert not made.unseen and floor.said("recent", first.event).startswith("# Lately\nThe heron")


def test_a_person_s_lines_outlive_the_text_they_were_added_to(kept, message, grep):
    doomed = say(kept, message, "There is marmalade in the larder", "m", 6)
    kept.floor.write("diary/2026-01-15", "Marmalade was found.\nA quiet day.", by="rules", sources=[doomed])
    page = kept.floor.folder / "diary" / "2026-01-15.md"
    page.write_text(page.read_text() + "I liked it.\n")
    assert kept.floor.history("diary/2026-01-15")[-1].by == "hand"
    forget(kept)
    assert grep(kept.path, b"Marmalade") == [] and kept.floor.read("diary/2026-01-15") == "I liked it.\n"


def test_the_only_text_of_a_page_takes_the_page_along(kept, message, grep):
    doomed = say(kept, message, "There is marmalade in the larder", "m", 6)
    kept.floor.write("recent", "Marmalade was found.", by="model", sources=[doomed])
    forget(kept)
    assert grep(kept.path, b"Marmalade") == []
    assert kept.floor.read("recent") == "" and "recent.md" not in kept.floor.names()
    assert kept.floor.write("recent", "Nothing.", by="model").by == "model"


def test_cards_and_proposals_go(kept, message, grep):
    doomed = say(kept, message, "There is marmalade in the larder", "m", 6)
    kept.floor.add_card("The larder holds marmalade", by="agent", sources=[doomed])
    stays = kept.floor.add_card("Ask before you push")
    kept.floor.change_card(kept.floor.cards()[0].id, "The larder holds marmalade, two jars")
    kept.floor.propose("notes", kept.floor.read("notes") + "- more\n", why="tidier")
    forget(kept)
    assert grep(kept.path, NEEDLE) == []
    assert kept.floor.cards() == [stays]
    (wanted,) = kept.floor.proposals()
    kept.floor.approve(wanted.id)
    assert lines_of(kept)[-1] == "more"


def test_interrupted_it_is_finished_at_the_next_opening(kept, grep):
    """First with nothing done but the tombstones, then with the working copy clean and the journal not."""
    path, other = kept.path, kept.floor.folder / "notes.md"
    doomed = kept.doomed([hit.turn_id for hit in kept.search("marmalade").hits])
    forgetting.record(kept.journal(), doomed, now=perdure.home._now())
    other.write_text("\n".join(raw for raw in other.read_text().splitlines() if "marmalade" not in raw) + "\n")
    kept.close()
    with perdure.open(path, user="ada") as again:
        assert grep(path, NEEDLE) == []
        assert "use SQLite WAL mode for database" in lines_of(again) and WORDS not in lines_of(again)


def test_done_twice_it_changes_nothing(kept):
    forget(kept)
    before = {path: path.read_bytes() for path in kept.path.rglob("*.jsonl")}
    gone = forgetting.gone(kept.archive, kept.journal())
    floor_forget.apply(kept.journal(), gone, lambda _: kept.floor.folder)
    assert {path: path.read_bytes() for path in kept.path.rglob("*.jsonl")} == before


@pytest.mark.parametrize("forgets_first", [True, False])
def test_a_home_that_is_merged_brings_nothing_back(opened, message, grep, forgets_first):
    """Both noted it; one forgets it, before or after the other's texts come in; the other adds a line meanwhile."""
    a, b = opened("a"), opened("b")
    for home in (a, b):
        say(home, message, WORDS, "s", 1)
    a.merge(b.path)
    b.merge(a.path)
    if forgets_first:
        forget(a)
        b.note("Mira knows the tariff")
        a.merge(b.path)
    else:
        b.note("Mira knows the tariff")
        a.merge(b.path)
        forget(a)
    b.merge(a.path)
    for home in (a, b):
        assert grep(home.path, NEEDLE) == []
        assert lines_of(home) == ["Mira knows the tariff"]


def test_two_homes_that_forget_different_lines_both_lose_both(opened, message, grep):
    a, b = opened("a"), opened("b")
    for n, text in enumerate((WORDS, "My editor is Helix", "Every commit must be signed")):
        say(a, message, text, f"s{n}", n)
    b.merge(a.path)
    forget(a)
    forget(b, "Helix")
    a.merge(b.path)
    b.merge(a.path)
    for home in (a, b):
        assert grep(home.path, NEEDLE) == [] and grep(home.path, b"Helix") == []
        assert lines_of(home) == ["Every commit must be signed"]


def test_a_line_by_hand_is_told_and_can_be_forgotten(kept, message, grep):
    say(kept, message, "The key of the shed hangs behind the door of the larder", "k", 7)
    kept.floor.write("core", "# House\n- the key of the shed hangs behind the door\n- A second line")
    doomed = kept.doomed([hit.turn_id for hit in kept.search("shed").hits])
    assert kept.repeating(doomed) == [("core.md", "- the key of the shed hangs behind the door")]
    kept.forget(doomed)
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


def test_a_forgotten_line_is_finished_at_the_next_opening_and_in_other_homes(opened, message, grep):
    a, b = opened("a"), opened("b")
    a.note("The shed has a marmalade jar")
    b.merge(a.path)
    floor_forget.record_line(
        a.journal(), "default", "notes.md", "The shed has a marmalade jar", now=perdure.home._now()
    )
    a.close()
    a = opened("a")
    assert grep(a.path, NEEDLE) == []
    b.floor.write("notes", b.floor.read("notes") + "- Mira knows")
    a.merge(b.path)
    b.merge(a.path)
    assert grep(a.path, NEEDLE) == grep(b.path, NEEDLE) == []
    assert lines_of(a) == lines_of(b) == ["Mira knows"]


def test_erase_takes_the_floor_along(opened, kept, message, grep):
    eve = opened("home", "eve")
    eve.note("Eve likes marmalade")
    kept.floor.propose("notes", "- marmalade for all")
    kept.erase()
    assert {path.split("/")[1] for path in grep(kept.path, b"armalade")} <= {"default~eve", "floor-eve.json", "journal"}
    assert kept.floor.read("notes") == "" and lines_of(eve) == ["Eve likes marmalade"]
    eve.erase()
    assert grep(kept.path, b"armalade") == []


def test_the_command_tells_what_stays(kept, message):
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
        {"page": "core.md", "line": "- marmalade, never jam, says Ada of all people"}
    ]


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_a_merge_that_brings_a_forgetting_makes_no_edit_of_an_old_text(opened, grep, order):
    a, b = opened("a"), opened("b")
    a.floor.write("notes", "# Notes\n- the marmalade key\n- tea is green\n")
    b.merge(a.path)
    b.floor.write("notes", b.floor.read("notes") + "- b adds this\n")
    a.floor.forget_line("notes", "the marmalade key")
    a.floor.write("notes", "# Notes\n- the newest text\n")
    homes = [(b, a), (a, b)]
    for one, other in homes if order == "ab" else homes[::-1]:
        one.merge(other.path)
        one.floor.read("notes")
    b.merge(a.path)
    for home in (a, b):
        assert home.floor.read("notes") == "# Notes\n- the newest text\n"
        assert grep(home.path, NEEDLE) == []


def test_what_lies_beside_a_page_that_was_taken_away_is_looked_at_and_goes(kept):
    kept.floor.write("core", "one")
    kept.floor.remove("core")
    (aside,) = kept.floor.folder.glob(".core.md.*.displaced")
    os.utime(aside, (1, 1))
    assert kept.floor.read("core") == ""
    time.sleep(max(0, working.SETTLED_S - (time.time() - aside.stat().st_ctime) + 0.1))
    assert kept.floor.read("core") == "" and not aside.exists()


def test_words_of_a_card_and_of_a_proposal_go_for_good_also_when_they_were_taken_away(opened, grep):
    a, b = opened("a"), opened("b")
    gone = a.floor.add_card("The larder holds marmalade")
    stays = a.floor.add_card("Ask before you push")
    wanted = a.floor.propose("core", "# House\n- marmalade\n", why="the marmalade")
    a.floor.approve(wanted.id)
    a.floor.change_card(gone.id, "Two jars of marmalade")
    b.merge(a.path)
    a.floor.remove_card(gone.id)
    a.floor.forget_asked(gone.id)
    a.floor.forget_asked(wanted.id)
    a.floor.forget_line("core", "marmalade")
    with pytest.raises(NotFound):
        a.floor.forget_asked(gone.id)
    b.merge(a.path)
    a.merge(b.path)
    for home in (a, b):
        assert grep(home.path, NEEDLE) == []
        assert home.floor.cards() == [stays] and home.floor.read("core") == "# House\n"


def test_a_card_in_the_same_words_is_told(kept, message):
    card = kept.floor.add_card("The key of the shed hangs behind the door")
    say(kept, message, "The key of the shed hangs behind the door", "k", 7)
    doomed = kept.doomed([hit.turn_id for hit in kept.search("shed").hits])
    assert (card.id, card.text) in kept.repeating(doomed)


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


def test_erase_takes_a_link_away_and_leaves_its_target(kept, tmp_path):
    kept.floor.write("core", "one")
    target, folder = tmp_path / "mine", kept.floor.folder
    folder.rename(target)
    folder.symlink_to(target)
    assert kept.linked_floors() == [target]
    kept.erase()
    assert not folder.is_symlink() and (target / "core.md").exists()


def test_a_home_that_may_only_be_read_keeps_nothing_of_its_floor(kept):
    kept.floor.write("core", "one")
    (record,) = (kept.path / "run").glob("floor-*.json")
    record.unlink()
    with perdure.open(kept.path, user="ada", read_only=True) as reader:
        assert reader.floor.read("core") == "one\n"
    assert not record.exists()
