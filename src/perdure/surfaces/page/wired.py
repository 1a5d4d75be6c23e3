"""The page beside the API: one server, one table of homes."""

from __future__ import annotations

import hashlib
import os

from perdure.authority.socket import Authority
from perdure.home import Home
from perdure.surfaces.http.app import Api, Beside
from perdure.surfaces.page.app import Page, wants_page
from perdure.surfaces.page.sessions import Links, Sessions
from perdure.types import Identity


class Wired:
    """What a server needs to serve the page, and the links by which its owner comes in."""

    def __init__(self, home: Home, authority: Authority, *, is_tls: bool) -> None:
        self.links = Links()
        self._authority = authority
        self._owner = Identity(home.user, home.config.machine, "", is_admin=True)
        self._cookie = "perdure-" + hashlib.sha256(os.fsencode(home.path)).hexdigest()[:8]
        self._is_tls = is_tls

    def __call__(self, api: Api) -> Beside:
        """The page's part of an application."""
        sessions = Sessions(api.requests, self._authority, self._owner, self.links)
        page = Page(api, sessions, self._cookie, self._is_tls)
        return Beside(page.routes(), wants_page, page.lost)
