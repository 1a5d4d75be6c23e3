"""A resident home that is served with its page and its agent, over the scripted model."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import perdure
from perdure.service.server import HomeServer, Intervals
from perdure.surfaces.web.listener import Listener


class ServedAgent:
    """A home that answers over HTTP in this process; use it as a context."""

    def __init__(self, place: Path, model_url: str, *, agent: str = "", settings: str = "") -> None:
        """agent: the page agent.yaml."""
        self.place = place
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        (place / "config.toml").write_text(
            f'[server]\nhttp = "127.0.0.1:0"\n[models.embedder]\nkind = "off"\n'
            f'[models.roles.resident]\nprovider = "openai"\nmodel = "scripted"\nurl = "{model_url}/v1"\n'
            f"window_tokens = 32000\n{settings}"
        )
        self.home = perdure.open(place, user="ada")
        if agent:
            self.home.floor.write("agent.yaml", agent)
        _, self.secret = self.home.sharing.machines.register("ada", "desk")
        self.begin()

    def begin(self) -> None:
        """Serve it."""
        self.serving = HomeServer(self.home, intervals=Intervals(round_s=0.2, prove_s=5, tick_s=60))
        self.listener = Listener(self.serving)
        self.serving.page_link = self.listener.make_page_link
        self._thread = threading.Thread(target=self.serving.run, daemon=True)
        self._thread.start()
        self.address = self.listener.start()

    def end(self) -> None:
        """Serve it no more."""
        self.listener.close()
        self.serving.stop_event.set()
        self._thread.join(timeout=10)

    def __enter__(self) -> ServedAgent:
        return self

    def __exit__(self, *_: Any) -> None:
        self.end()
        self.home.close()
