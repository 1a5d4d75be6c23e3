"""A full disk, a read-only home, a newer format, others' homes: a clear error, nothing lost, nothing touched."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner

import perdure
from perdure.errors import (
    ConfigFault,
    DiskFull,
    HomeMissing,
    HomeNotPrivate,
    NewerFormat,
    PerdureError,
    ReadOnlyHome,
    ToolError,
    UsageError,
)
from perdure.formats.perdure import INTERRUPTED, Message
from perdure.models.chat import ChatReply, ToolCall, ToolSpec
from perdure.session.calls import Tool, ToolOutput
from perdure.session.catalog import list_sessions
from perdure.session.log import read_path
from perdure.session.session import open_session
from perdure.surfaces.cli import cli
from perdure.testing import ScriptedChat
from perdure.types import Origin
from rig.model_server import ModelServer


def mount(*words):
    done = subprocess.run(["mount", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 5 MB."""
    if not sys.platform.startswith("linux") or os.geteuid():
        pytest.skip("only root can mount a small disk")
    place = tmp_path / "disk"
    place.mkdir()
    mount("-t", "tmpfs", "-o", "size=5m", "none", place)
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def fill(place):
    with contextlib.suppress(OSError), open(place / "ballast", "ab", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


def test_full_disk_refuses_one_capture_and_keeps_the_others(small_disk, message):
    """Captures go on until the disk is full; the refused one leaves nothing, all acknowledged ones are there, search
    answers on the full disk, and with space again everything goes on where it was.
    """
    kept = []
    (small_disk / "reserve").write_bytes(b"x" * 2_500_000)
    with perdure.open(small_disk / "home", user="ada") as home:
        with pytest.raises(DiskFull, match="Free some space"):
            for n in range(400):
                line = message("user", f"anchor{n}x " + os.urandom(9000).hex(), n)
                assert home.capture(line, runtime="messages", session=f"s{n}").outcome == "stored"
                kept.append(line)
        assert len(kept) > 10
        fill(small_disk)
        for call in (
            lambda: home.capture(line, runtime="messages", session="late"),
            lambda: home.captures.enqueue(Origin("messages", "late", "late"), line, from_offset=0, path=None),
            lambda: home.journal().append("note", {"text": "y" * 9000}, now=datetime.now(UTC)),
            lambda: home.upkeep.pack(idle_days=0),
        ):
            with pytest.raises(DiskFull):
                call()
        assert home.search("anchor3x").hits != ()
        assert home.upkeep.verify().ok
    with perdure.open(small_disk / "home", user="ada") as home:  # opened anew on the full disk
        assert home.search("anchor3x").hits != ()
    for words in (("search", "anchor3x"), ("recall", "anchor3x"), ("status",), ("tree",), ("memories", "list")):
        line = [sys.executable, "-m", "perdure.surfaces.cli", *words]
        env = {**os.environ, "PERDURE_HOME": str(small_disk / "home")}
        done = subprocess.run(line, capture_output=True, env=env, check=False)
        assert done.returncode == 0, (words, done.stderr)
    (small_disk / "ballast").unlink()
    (small_disk / "reserve").unlink()
    with perdure.open(small_disk / "home", user="ada") as home:
        home.upkeep.catch_up()
        for n, line in enumerate(kept):
            assert home.capture(line, runtime="messages", session=f"s{n}").outcome == "already"
        assert home.capture(message("user", "anchor after"), runtime="messages", session="after").outcome == "stored"
        assert len(home.search("after").hits) == 1
        assert home.upkeep.verify().ok and home.archive.ledger.count_all()[0] == len(kept) + 1


def test_a_session_on_a_full_disk_goes_on_later(small_disk):
    """The disk is full between a call and its result: the turn ends with DiskFull, nothing that was acknowledged is
    lost or torn, and with space again the session goes on.
    """
    (small_disk / "reserve").write_bytes(b"x" * 1_000_000)

    def fill_disk(*_):
        fill(small_disk)
        return ToolOutput("alpha " * 2000)

    call = ChatReply("I look.", calls=(ToolCall("c1", "read", {}),), model="m")
    tool = Tool(ToolSpec("read", "Read a file.", {"type": "object"}), fill_disk)
    with perdure.open(small_disk / "home", user="ada") as home:
        with open_session(home, chat=ScriptedChat(["One.", call]), tools=[tool]) as session:
            session.say("Hello.")
            with pytest.raises(DiskFull, match="Free some space"):
                session.say("Look at it.")
        texts = [entry.text for entry in read_path(home, session.session) if isinstance(entry, Message)]
        assert texts == ["Hello.", "One.", "Look at it.", "I look."]
    (small_disk / "ballast").unlink()
    (small_disk / "reserve").unlink()
    with perdure.open(small_disk / "home", user="ada") as home:
        with open_session(home, session.session, chat=ScriptedChat(["Two."])) as session:
            session.say("And now?")
        texts = [entry.text for entry in read_path(home, session.session) if isinstance(entry, Message)]
        assert texts == ["Hello.", "One.", "Look at it.", "I look.", INTERRUPTED, "And now?", "Two."]
        assert home.upkeep.verify().ok
    assert not list((small_disk / "home" / "outbox").rglob("*.unreadable"))


def test_a_question_on_a_full_disk_names_the_disk(small_disk):
    """No model is called, because its cost could not be recorded; what failed is the disk, not a right."""
    home = small_disk / "home"
    with ModelServer() as server:
        perdure.open(home, user="ada").close()
        settings = f'provider = "openai"\nmodel = "m"\nurl = "{server.url}/v1"\nwindow_tokens = 32000\n'
        (home / "config.toml").write_text(f"[models.roles.resident]\n{settings}")
        assert CliRunner().invoke(cli, ["ask", "One?", "--home", str(home)]).exit_code == 0
        fill(small_disk)
        refused = CliRunner().invoke(cli, ["ask", "Two?", "--home", str(home)])
        assert refused.exit_code == 1 and "he disk is full" in refused.output and "writable" not in refused.output
        (small_disk / "ballast").unlink()
        assert CliRunner().invoke(cli, ["ask", "Two?", "--home", str(home)]).exit_code == 0


def test_an_import_on_a_full_disk(small_disk, message, tmp_path):
    """A file larger than the disk: DiskFull, no debris, and the home works on."""
    (tmp_path / "big.jsonl").write_bytes(message("user", os.urandom(5_000_000).hex()))
    with perdure.open(small_disk / "home", user="ada") as home:
        home.capture(message("user", "anchor"), runtime="messages", session="s")
        with pytest.raises(DiskFull):
            home.import_files([tmp_path / "big.jsonl"])
        assert home.upkeep.verify().findings == []
        assert home.capture(message("user", "more"), runtime="messages", session="t").outcome == "stored"
        assert len(home.search("anchor").hits) == 1


def test_a_forget_on_a_full_disk_is_finished_later(small_disk, message, grep):
    """There is no space to rewrite the run: the turn is gone as soon as there is."""
    with perdure.open(small_disk / "home", user="ada") as home:
        home.capture(message("user", "the marmalade under the stair") + message("user", "y" * 200_000),
                     runtime="messages", session="s")  # fmt: skip
        (hit,) = home.search("marmalade").hits
        doomed = home.forgetting.plan([hit.turn_id])
        fill(small_disk)
        with (small_disk / "ballast").open("r+b") as file:
            file.truncate((small_disk / "ballast").stat().st_size - 60_000)
        with contextlib.suppress(DiskFull):
            home.forgetting.apply(doomed)
    (small_disk / "ballast").unlink()
    with perdure.open(small_disk / "home", user="ada") as home:
        if not home.journal().read(type_="forgotten"):
            home.forgetting.apply(home.forgetting.plan([hit.turn_id]))
        assert grep(home.path, b"marmalade") == [] and home.upkeep.verify().ok


@pytest.fixture
def read_only(tmp_path, message):
    """A home with two runs, one packed, on a file system that is mounted read-only."""
    if not sys.platform.startswith("linux") or os.geteuid():
        pytest.skip("only root can mount read-only")
    with perdure.open(tmp_path / "home", user="ada") as home:
        home.capture(message("user", "anchor packed", 0), runtime="messages", session="s")
        home.upkeep.pack(idle_days=0)
        home.capture(message("user", "anchor loose", 1), runtime="messages", session="t")
    place = tmp_path / "view"
    place.mkdir()

    def view():
        mount("--bind", tmp_path / "home", place)
        mount("-o", "remount,ro,bind", place)
        return place

    yield view
    subprocess.run(["umount", "-l", place], check=False, capture_output=True)


def check_reading(home):
    found = home.search("anchor")
    assert len(found.hits) == 2
    for hit in found.hits:
        assert home.runs.transcript(hit.run_id).parsed.turns
    assert home.upkeep.verify().ok
    return found


def test_a_read_only_home_reads(read_only, message):
    """Search, show and verify work, from the index; whatever writes says why it cannot."""
    from perdure.types import Origin

    data = message("user", "refused")
    with perdure.open(read_only(), user="ada") as home:
        assert not home.writable
        found = check_reading(home)
        assert found.degraded == () and found.n_behind == 0
        doomed = home.forgetting.plan([found.hits[0].turn_id])
        assert home.runs.get(found.hits[0].run_id).n_turns == 1
        for call in (
            lambda: home.capture(data, runtime="messages", session="x"),
            lambda: home.captures.enqueue(Origin("messages", "x", "x"), data, from_offset=0, path=None),
            lambda: home.forgetting.apply(doomed),
            home.captures.pause,
            lambda: home.upkeep.pack(idle_days=0),
            home.upkeep.rebuild,
            lambda: home.import_files([]),
            lambda: home.captures.mark_incognito("messages", "x"),
        ):
            with pytest.raises(ReadOnlyHome):
                call()


def test_sessions_of_a_read_only_home_are_read_and_go_on_in_memory(read_only, tmp_path):
    with perdure.open(tmp_path / "home", user="ada") as home:
        with open_session(home, chat=ScriptedChat(["One."])) as session:
            session.say("Hello.")
        home.upkeep.catch_up()
    view = read_only()
    before = snapshot(view)
    with perdure.open(view, user="ada") as home:
        assert [item.overview.title for item in list_sessions(home)] == ["Hello."]
        for resume in (session.session, ""):
            with open_session(home, resume, chat=ScriptedChat(["Two."])) as unkept:
                assert unkept.say("And now?").text == "Two."
                assert len(unkept.log.find_path()) == (5 if resume else 3)
    assert snapshot(view) == before


@pytest.fixture
def closed_folder(tmp_path, message):
    """A home whose permissions let nobody write, with a memory that its index lacks; and how a process obeys them."""
    with perdure.open(tmp_path / "home") as home:
        home.capture(message("user", "anchor", 0), runtime="messages", session="s")
        home.search("anchor")
        home.remember("We moved staging to port 48642.")
    obey = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    if obey and not shutil.which(obey[0]):
        pytest.skip("root obeys no permissions without setpriv")
    folders = [home.path, *(path for path in home.path.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o500)
    yield home.path, obey
    for folder in folders:
        folder.chmod(0o700)


@pytest.mark.parametrize(
    "command",
    ["status", "search anchor", "recall --all-projects anchor", "context anchor", "tree", "memories list", "floor"],
)
def test_a_home_without_write_permission_is_read(closed_folder, command):
    """What the error of a refused write promises: reading still works."""
    path, obey = closed_folder
    words = [*obey, sys.executable, "-m", "perdure.surfaces.cli", *command.split(), "--home", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_doctor_says_what_it_cannot_check_in_a_home_without_write_permission(closed_folder):
    path, obey = closed_folder
    words = [*obey, sys.executable, "-m", "perdure.surfaces.cli", "doctor", "--home", str(path), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    checks = {check["name"]: check for check in json.loads(done.stdout)["result"]["checks"]}
    assert done.returncode == 1 and not done.stderr
    assert [name for name, check in checks.items() if check["grade"] == "problem"] == ["home"]
    assert "permissions" in checks["home"]["advice"] and checks["data path"]["found"].startswith("not checked: ")


@pytest.mark.index_file("it deletes the file")
def test_read_only_home_without_its_caches_is_read(read_only, tmp_path):
    shutil.rmtree(tmp_path / "home" / "cache")
    for path in (tmp_path / "home").glob("index*"):
        path.unlink()
    with perdure.open(read_only(), user="ada") as home:
        assert check_reading(home).degraded == ("index",)


def test_read_only_home_is_read_beside_a_writer(opened, message):
    """`read_only=True`: beside a process that writes, without touching anything."""
    home = opened()
    home.capture(message("user", "anchor", 0), runtime="messages", session="s")
    reader = opened(read_only=True)
    assert len(reader.search("anchor").hits) == 1
    home.capture(message("user", "anchor more", 1), runtime="messages", session="t")
    assert len(reader.search("anchor").hits) == 2
    with pytest.raises(ReadOnlyHome):
        reader.capture(message("user", "x"), runtime="messages", session="x")
    with pytest.raises(HomeMissing):
        opened("none", read_only=True)
    with pytest.raises(HomeMissing):
        opened("none", create=False)


def snapshot(place):
    return {p: (p.read_bytes() if p.is_file() else None, p.stat().st_mtime_ns) for p in sorted(place.rglob("*"))}


@pytest.mark.parametrize("said", ["2\n", "99", "two\n", "1.5"])
def test_newer_format_is_refused_and_nothing_changes(opened, message, said):
    home = opened()
    home.capture(message("user", "anchor"), runtime="messages", session="s")
    home.close()
    (home.path / "archive" / "FORMAT").write_text(said)
    before = snapshot(home.path)
    for how in ({}, {"read_only": True}):
        with pytest.raises(NewerFormat, match="Upgrade Perdure"):
            opened(**how)
    assert snapshot(home.path) == before


def test_a_home_that_others_can_read_is_closed(opened):
    home = opened()
    home.close()
    home.path.chmod(0o755)
    opened()
    assert home.path.stat().st_mode & 0o777 == 0o700


def test_home_of_another_system_user_is_refused(tmp_path):
    if os.geteuid():
        pytest.skip("only root can give a folder away")
    (tmp_path / "home").mkdir(mode=0o700)
    os.chown(tmp_path / "home", 12345, 12345)
    with pytest.raises(HomeNotPrivate):
        perdure.open(tmp_path / "home", user="ada")
    assert list((tmp_path / "home").iterdir()) == []


def test_home_path_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "home").write_text("x")
    with pytest.raises(UsageError):
        perdure.open(tmp_path / "home", user="ada")


def test_a_config_mistake_is_named_at_opening(opened):
    home = opened()
    home.close()
    (home.path / "config.toml").write_text("[capture]\nexlude = []\n")
    with pytest.raises(ConfigFault, match=r"capture\.exlude"):
        opened()


@pytest.mark.parametrize("bad", ["../x", "a/b", "", ".", "a\0"])
def test_users_that_cannot_be(tmp_path, bad):
    if bad:
        with pytest.raises(UsageError):
            perdure.open(tmp_path / "home", user=bad)


@pytest.mark.parametrize("junk", [b"", b"junk" * 2000])
def test_lost_ledger_is_rebuilt(opened, message, junk):
    """The ledger is a cache: emptied or overwritten with junk, it is read from the archive again."""
    home = opened()
    home.capture(message("user", "anchor", 0), runtime="messages", session="s")
    digest = home.upkeep.digest()
    home.close()
    (home.path / "cache" / "ledger.db").write_bytes(junk)
    again = opened()
    assert again.upkeep.digest() == digest
    assert again.capture(message("user", "anchor", 0), runtime="messages", session="s").outcome == "already"
    assert again.upkeep.verify().ok


@pytest.mark.index_file("it damages the file")
@pytest.mark.parametrize("first", [2, 5, 20])
def test_an_index_with_damaged_pages_is_survived(opened, message, first):
    """Every page from one on is overwritten: search answers from the archive, and a rebuild mends it."""
    home = opened()
    for n in range(40):
        home.capture(
            message("user", f"anchor {n} " + "lorem ipsum dolor " * 40, n), runtime="messages", session=f"s{n}"
        )
    home.close()
    path = (home.path / "index.db").resolve()
    raw = bytearray(path.read_bytes())
    for at in range(4096 * first, len(raw), 4096):
        raw[at : at + 4096] = b"\xff" * 4096
    path.write_bytes(bytes(raw))
    again = opened()
    assert again.capture(message("user", "one more anchor", 99), runtime="messages", session="more").outcome == "stored"
    found = again.search("anchor", limit=100)
    assert len(found.hits) == 41 and found.degraded == ("index",)
    again.upkeep.rebuild()
    assert len(again.search("anchor", limit=100).hits) == 41


def test_every_error_gives_advice():
    """Each class of error carries an instruction, unless its detail is one, and a name for machines."""

    def below(kind):
        return [kind, *(one for child in kind.__subclasses__() for one in below(child))]

    for kind in set(below(PerdureError)) - {ToolError}:  # a model is told that one in its own words alone
        text = str(kind("the thing"))
        assert text.startswith("the thing: " if kind.advises else "the thing") and kind("x").code.islower()
        assert len(text) > 30 or (not kind.advises and len(str(kind())) > 30)


def test_full_disk_keeps_floor_pages_and_shows_hand_edits(small_disk):
    with perdure.open(small_disk / "home", user="ada") as home:
        floor = home.floor
        floor.write("notes", "one")
        fill(small_disk)
        with pytest.raises(DiskFull, match="Free some space"):
            floor.write("notes", "two " * 2000)
        assert floor.read("notes") == "one\n"
        (floor.folder / "notes.md").write_text("a hand\n")  # no longer than a block, which it has
        read = floor.read("notes")
        (small_disk / "ballast").unlink()
        assert read == "a hand\n" and floor.read("notes") == "a hand\n"
        assert floor.list_versions("notes")[-1].by == "hand"
        floor.write("notes", "two " * 2000)
        assert list(home.journal().find_damage()) == []


def test_floor_that_cannot_be_written_is_still_read(small_disk):
    with perdure.open(small_disk / "home", user="ada") as home:
        home.floor.write("notes", "one")
        home.floor.write("core", "alder")
        (home.floor.folder / "notes.md").write_text("a hand\n")
    mount("-o", "remount,ro", small_disk)
    try:
        with perdure.open(small_disk / "home", user="ada") as home:
            assert home.floor.read("notes") == "a hand\n" and home.floor.read("core") == "alder\n"
            assert "alder" in home.floor.layers().text
    finally:
        mount("-o", "remount,rw", small_disk)
    with perdure.open(small_disk / "home", user="ada") as home:
        assert home.floor.read("notes") == "a hand\n" and home.floor.list_versions("notes")[-1].by == "hand"
