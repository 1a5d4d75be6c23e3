"""A credential, and what is captured with it: owner and machine are its own, also with index and model down."""

from __future__ import annotations

from pathlib import Path

import perdure
from perdure.authority.machines import LocalAuthority


def test_index_and_model_may_be_down(tmp_path: Path, message) -> None:
    place = tmp_path / "home"
    place.mkdir(mode=0o700)
    endpoint = '[models.embedder]\nkind = "openai"\nurl = "http://127.0.0.1:9"\nmodel = "none"\ndimension = 3\n'
    (place / "config.toml").write_text(f'user = "mira"\nmachine = "server"\n{endpoint}')
    with perdure.open(place) as home:
        home.capture(message("user", "before"), runtime="messages", session="a")
        _, secret = home.machines.register("bob", "phone")
    index = (place / "index.db").resolve()
    index.write_bytes(b"no index" * 1000)
    identity = LocalAuthority(place, {"mira"}).identify(secret)
    assert identity is not None
    with perdure.open(place) as home, home.beside(identity=identity) as bob:
        answer = bob.capture(message("user", "The wombat digs"), runtime="messages", session="b")
        assert answer.outcome == "stored"
        run = bob.archive.run(bob.archive.held(answer.run_id or ""))
        assert (run.source.user, run.machine, run.readable_by) == ("bob", "phone", ("bob",))
        assert [hit.text for hit in bob.search("wombat").hits] == ["The wombat digs"]  # by a scan of the archive
        bob.rebuild()
        assert [hit.machine for hit in bob.search("wombat").hits] == ["phone"]
        assert home.search("wombat").hits == ()
