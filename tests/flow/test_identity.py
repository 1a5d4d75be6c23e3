"""A credential, and what is captured with it: owner and machine are its own, also with index and model down."""

from __future__ import annotations

from pathlib import Path

import pytest

import perdure
from perdure import turn
from perdure.archive.archive import Delta
from perdure.capture import alert
from perdure.capture.events import HookEvent
from perdure.sharing.machines import LocalAuthority
from perdure.types import Identity, Origin


@pytest.mark.index_file("it damages the file")
def test_index_and_model_may_be_down(tmp_path: Path, message) -> None:
    place = tmp_path / "home"
    place.mkdir(mode=0o700)
    endpoint = '[models.embedder]\nkind = "openai"\nurl = "http://127.0.0.1:9"\nmodel = "none"\ndimension = 3\n'
    (place / "config.toml").write_text(f'user = "mira"\nmachine = "server"\n{endpoint}')
    with perdure.open(place) as home:
        home.capture(message("user", "before"), runtime="messages", session="a")
        _, secret = home.sharing.machines.register("bob", "phone")
    index = (place / "index.db").resolve()
    index.write_bytes(b"no index" * 1000)
    identity = LocalAuthority(place, {"mira"}).identify(secret)
    assert identity is not None
    with perdure.open(place) as home, home.clone_for_thread(identity=identity) as bob:
        answer = bob.capture(message("user", "The wombat digs"), runtime="messages", session="b")
        assert answer.outcome == "stored"
        run = bob.archive.read_run(bob.archive.get_entry(answer.run_id or ""))
        assert (run.source.user, run.machine, run.readable_by) == ("bob", "phone", ("bob",))
        assert [hit.text for hit in bob.search("wombat").hits] == ["The wombat digs"]  # by a scan of the archive
        bob.upkeep.rebuild()
        assert [hit.machine for hit in bob.search("wombat").hits] == ["phone"]
        assert home.search("wombat").hits == ()


def test_folder_of_another_machine_is_not_looked_up_here(tmp_path: Path, message) -> None:
    """The same path exists here, inside of a repository, and is excluded: neither is the other machine's affair."""
    place, folder = tmp_path / "home", tmp_path / "repository" / "src"
    place.mkdir(mode=0o700)
    (folder.parent / ".git").mkdir(parents=True)
    settings = f'user = "mira"\n[capture]\nexclude = ["{folder.parent}"]\n[floor]\nplace = "Lisbon"\n'
    (place / "config.toml").write_text(settings)
    origin = Origin("messages", "b", "b", cwd=str(folder))
    with perdure.open(place) as home, home.clone_for_thread(identity=Identity("bob", "phone", "m-1")) as bob:
        projects = [opened.connections.project_of(str(folder)) for opened in (home, bob)]
        assert projects == [str(folder.parent), str(folder)]
        assert home.captures.refusal(origin) and bob.captures.refusal(origin) is None
        said = message("user", "The axolotl tank heater is set to 21 degrees.")
        bob.captures.receive([Delta(origin, "bob", "phone", said, project=str(folder))])
        bob.upkeep.catch_up()
        (cue,) = bob.recall("How warm is the axolotl tank heater?", cwd=str(folder)).cues
        assert "axolotl" in cue.text
        assert bob.remember("The gecko lamp is set to 30 degrees", cwd=str(folder)).project == str(folder)
        assert "Lisbon" in home.floor.location_line() and "Lisbon" not in bob.floor.location_line()


def test_alert_of_a_home_is_told_only_to_its_own_user(tmp_path: Path, message) -> None:
    place = tmp_path / "home"
    place.mkdir(mode=0o700)
    (place / "config.toml").write_text('user = "mira"\n')
    event = HookEvent("claude-code", "prompt", "s", prompt="What of the wombat?", is_human=True)
    with perdure.open(place) as home, home.clone_for_thread(identity=Identity("bob", "phone", "m-1")) as bob:
        home.capture(message("user", "before"), runtime="messages", session="a")
        home.upkeep.catch_up(everyone=True)
        alert.update_alert(place, ["the outbox does not drain"])
        assert turn.answer_event(bob, event, limit_ms=10_000).notice == ""
        assert "does not drain" in turn.answer_event(home, event, limit_ms=10_000).notice
