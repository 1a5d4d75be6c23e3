"""From the address in a browser to bytes: who visits, whether a form is theirs, a thread with their home, the headers.

No page is kept by a browser, loads anything from another place, runs a script of a text's own, or stands in the frame
of another site. What changes something is a POST, which comes from a page of this home or is refused.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from perdure.capture import log
from perdure.live import where
from perdure.surfaces.http import bodies, faults
from perdure.surfaces.http.app import Api
from perdure.surfaces.http.faults import Refused
from perdure.surfaces.page import assets, render
from perdure.surfaces.page.navigation import NAVIGATION
from perdure.surfaces.page.sessions import SESSION_S, Sessions, Visitor
from perdure.surfaces.page.table import TABLE
from perdure.surfaces.page.visits import Answer, Moved, Sent, Shown, View, Visit

_NOTICE_CHARS = 300
_FIELDS = 2_000  # of one form
_TOKEN = "token"
_UNKEPT = (_TOKEN, "secret")  # fields that are given back to nobody
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; font-src 'self'; "
    "manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-store",
}
_FOR_EVER = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}
_SAID = {401: "Who are you?", 403: "That is not yours to do", 404: "There is nothing here", 429: "Too often"}
_UNKNOWN = "That is the secret of no machine that may speak here."
_ENDED = "Your session has ended, and nothing was changed. Come in again; what you typed is below."
_STALE = "This link was used already, or is older than ten minutes. `perdure page` prints a new one."
_FOREIGN = (
    "This form did not come from a page of this home, or its page is older than your session. Go back and reload."
)


@dataclass
class Page:
    """The pages of a running server."""

    api: Api
    sessions: Sessions
    cookie: str  # its name: homes on one machine share the cookies of its address, whatever their ports
    is_tls: bool
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))

    def routes(self) -> list[BaseRoute]:
        """Every address."""
        views = [Route(view.path, self._endpoint(view), methods=[view.method]) for view in TABLE]
        return [
            Route("/static/{digest}/{name}", self._asset),
            Route("/enter", self._safely(self._door)),
            Route("/enter", self._safely(self._enter), methods=["POST"]),
            Route("/enter/{secret}", self._safely(self._follow)),
            Route("/leave", self._safely(self._leave), methods=["POST"]),
            Route("/events", self._safely(self._events)),
            *views,
        ]

    @property
    def _notice(self) -> str:
        """The name of the cookie for what is told once."""
        return f"{self.cookie}-notice"

    # who visits -------------------------------------------------------------------------------------------

    async def _visitor(self, request: Request) -> Visitor | None:
        secret = request.cookies.get(self.cookie, "")
        if not secret:
            return None
        return await self.api.desks["identity"].ask(lambda: self.sessions.visitor(secret))

    async def _known(self, request: Request) -> Visitor:
        """Who visits. Raises Refused (401, 429)."""
        visitor = await self._visitor(request)
        if visitor is None:
            raise Refused(401, "unauthorized", "Your session has ended.")
        who = visitor.identity.machine_id or self.cookie
        if wait_s := self.api.asked.take(who, self.api.now_s()):
            raise faults.retry("too-many", "You ask too often.", after_s=wait_s, status=429)
        return visitor

    async def _door(self, request: Request) -> Response:
        """The form for a credential; who is in already goes on."""
        to = _inside(request.query_params.get("to", "/"))
        if await self._visitor(request) is not None:
            return RedirectResponse(to, 303, HEADERS)
        return self._page(request, None, Shown("enter.html", {"title": "Enter", "to": to, "said": ""}))

    async def _enter(self, request: Request) -> Response:
        """Let in who sends the secret of a machine."""
        _check_origin(request)
        form = await self._form(request)
        to = _inside(form.get("to", ("/",))[-1])
        secret = form.get("secret", ("",))[-1].strip()
        visitor = await self.api.desks["identity"].ask(lambda: self.sessions.by_credential(secret))
        if visitor is None:
            self._count_guess(request)
            return self._page(request, None, Shown("enter.html", {"title": "Enter", "to": to, "said": _UNKNOWN}, 401))
        return self._let_in(visitor, to)

    async def _follow(self, request: Request) -> Response:
        """Let in who followed a link."""
        to = _inside(request.query_params.get("to", "/"))
        secret = request.path_params["secret"]
        if not _is_person(request):  # whatever looks at links before a person does uses none up
            return Response(status_code=204, headers=HEADERS)
        visitor = await self.api.desks["identity"].ask(lambda: self.sessions.by_link(secret))
        if visitor is not None:
            return self._let_in(visitor, to)
        if await self._visitor(request) is not None:
            return RedirectResponse(to, 303, HEADERS)
        self._count_guess(request)
        return self._page(request, None, Shown("enter.html", {"title": "Enter", "to": to, "said": _STALE}, 401))

    def _count_guess(self, request: Request) -> None:
        address = request.client.host if request.client else ""
        if wait_s := self.api.guessed.take(address, self.api.now_s()):
            raise faults.retry("too-many", "Too many wrong tries from this address.", after_s=wait_s, status=429)

    def _let_in(self, visitor: Visitor, to: str) -> Response:
        answer = RedirectResponse(to, 303, HEADERS)
        answer.set_cookie(
            self.cookie, visitor.secret, max_age=SESSION_S, httponly=True, samesite="strict", secure=self.is_tls
        )
        return answer

    async def _leave(self, request: Request) -> Response:
        """End the session of this browser, or every session of its user."""
        visitor = await self._known(request)
        form = await self._own_form(request, visitor)
        end = self.sessions.end_all if "everywhere" in form else self.sessions.end
        await self.api.desks["identity"].ask(lambda: end(visitor))
        answer = RedirectResponse("/enter", 303, HEADERS)
        answer.delete_cookie(self.cookie, httponly=True, samesite="strict", secure=self.is_tls)
        return answer

    async def _events(self, request: Request) -> Response:
        """The visitor's own events, as they happen."""
        identity = (await self._known(request)).identity

        async def is_still() -> bool:
            visitor = await self._visitor(request)
            return visitor is not None and visitor.identity == identity

        await self.api.desks["read"].ask(lambda: self.api.server.news.begin(identity.user))
        return self.api.server.hub.response(identity, is_still)

    # forms ------------------------------------------------------------------------------------------------

    async def _form(self, request: Request) -> dict[str, tuple[str, ...]]:
        """What a form holds. Raises Refused (400, 408, 413)."""
        body = await bodies.read(request, self.api.server.home / "cache", bodies.Limits())
        with body.file:
            raw = body.read()
        try:
            pairs = parse_qsl(raw.decode(), keep_blank_values=True, max_num_fields=_FIELDS)
        except ValueError:
            raise faults.bad("the form could not be read") from None
        found: dict[str, tuple[str, ...]] = {}
        for name, value in pairs:
            found[name] = (*found.get(name, ()), value.replace("\r\n", "\n"))
        return found

    async def _own_form(self, request: Request, visitor: Visitor) -> dict[str, tuple[str, ...]]:
        """What a form of the visitor's holds. Raises Refused (403) for one that is not theirs."""
        _check_origin(request)
        form = await self._form(request)
        (*_, token) = form.pop(_TOKEN, ("",))
        if not hmac.compare_digest(token.encode(), visitor.token.encode()):
            raise Refused(403, "forbidden", _FOREIGN, more=_kept(form))
        return form

    async def _typed(self, request: Request, refused: Refused) -> Refused:
        """A refusal of a form that gives back what was typed into it, to a page of this home alone."""
        _check_origin(request)
        return replace(refused, more=_kept(await self._form(request)))

    # views ------------------------------------------------------------------------------------------------

    def _endpoint(self, view: View) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            if view.method == "POST" and await self._visitor(request) is None:
                raise await self._typed(request, Refused(401, "unauthorized", _ENDED))
            visitor = await self._known(request)
            if view.is_admin and not visitor.identity.is_admin:
                raise Refused(403, "forbidden", "Only who sees to this whole home may look at that.")
            form = await self._own_form(request, visitor) if view.method == "POST" else {}
            return await self.api.desks[view.desk].ask(lambda: self._answered(view, request, visitor, form))

        return self._safely(respond)

    def _answered(
        self, view: View, request: Request, visitor: Visitor, form: Mapping[str, tuple[str, ...]]
    ) -> Response:
        """In a thread: the answer of a view, as bytes."""
        with self.api.homes.lent(visitor.identity, read_only=view.desk != "write") as home:
            last = {name: values[-1] for name, values in form.items()}
            visit = Visit(
                self.api.server, visitor.identity, home, dict(request.path_params), request.query_params, last,
                self.now(), form,
            )  # fmt: skip
            return self._as_bytes(request, visitor, view.answer(visit), nav=view.nav)

    def _as_bytes(self, request: Request, visitor: Visitor, answer: Answer, nav: str) -> Response:
        if isinstance(answer, Sent):
            return Response(answer.body, 200, {**HEADERS, **answer.headers}, answer.kind)
        if isinstance(answer, Moved):
            moved = RedirectResponse(_inside(answer.to), 303, HEADERS)
            if answer.notice:
                said = quote(answer.notice[:_NOTICE_CHARS])
                moved.set_cookie(self._notice, said, max_age=60, httponly=True, samesite="strict", secure=self.is_tls)
            return moved
        return self._page(request, visitor, answer, nav=nav)

    def _page(self, request: Request, visitor: Visitor | None, shown: Shown, nav: str = "") -> Response:
        """A page with what every page has."""
        notice = unquote(request.cookies.get(self._notice, "")) if visitor and not _is_part(request) else ""
        whole = {
            "visitor": visitor.identity if visitor else None, "csrf": visitor.token if visitor else "",
            "notice": notice, "here": _here(request), "nav": nav, "now": self.now(), "navigation": NAVIGATION,
            **shown.values,
        }  # fmt: skip
        answer = Response(render.page(shown.template, whole), shown.status, HEADERS, "text/html; charset=utf-8")
        if notice:
            answer.delete_cookie(self._notice, httponly=True, samesite="strict", secure=self.is_tls)
        return answer

    # what goes wrong --------------------------------------------------------------------------------------

    def _safely(self, respond: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def safe(request: Request) -> Response:
            try:
                return await respond(request)
            except ClientDisconnect:
                return Response(status_code=400)
            except Exception as error:  # noqa: BLE001 - every address answers with a page, whatever happens
                return await self.failed(request, error)

        return safe

    async def failed(self, request: Request, error: Exception) -> Response:
        """The page for what went wrong; who has no session is shown the door."""
        refused = faults.refused(error)
        if refused.status >= 500:
            code = str(getattr(error, "code", type(error).__name__))
            row = getattr(request.scope.get("route"), "path", "")
            log.note(self.api.server.home, "failed", client="page", kind=row, code=code, at_line=where(error))
        if refused.status == 401 and not refused.more and not _is_part(request):
            to = _here(request) if request.method == "GET" else "/"
            return RedirectResponse(f"/enter?{urlencode({'to': to})}", 303, HEADERS)
        visitor = await self._visitor(request) if refused.status != 401 else None
        values = {
            "title": _SAID.get(refused.status, "That did not work"), "said": refused.message, "status": refused.status,
            "typed": refused.more.get("typed", {}), "to": _from(request),
        }  # fmt: skip
        answer = self._page(request, visitor, Shown("error.html", values, refused.status))
        answer.headers.update({name: value for name, value in refused.headers.items() if name == "Retry-After"})
        return answer

    async def lost(self, request: Request) -> Response:
        """The page for an address at which there is nothing."""
        if await self._visitor(request) is None:
            return await self.failed(request, Refused(401, "unauthorized", ""))
        return await self.failed(request, Refused(404, "not-found", "There is no page at this address."))

    async def _asset(self, request: Request) -> Response:
        found = assets.files().get(request.path_params["name"])
        if found is None:
            return Response(status_code=404, headers=HEADERS)
        return Response(found.body, 200, _FOR_EVER, found.kind)


def _check_origin(request: Request) -> None:
    """Raise Refused (403) for a form that a page of another place sent, by the browser's own word."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None and site not in ("same-origin", "none"):
        raise Refused(403, "forbidden", _FOREIGN)
    if site is None and origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise Refused(403, "forbidden", _FOREIGN)


def _kept(form: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """What was typed into a form, for its writer to take along."""
    typed = {name: values[-1] for name, values in form.items() if name not in _UNKEPT and values[-1].strip()}
    return {"typed": typed} if typed else {}


def _from(request: Request) -> str:
    """The page of this home from which a request came; its first one where that is not known."""
    found = urlsplit(request.headers.get("referer", ""))
    is_own = found.netloc == request.headers.get("host")
    return _inside(found.path + (f"?{found.query}" if found.query else "")) if is_own else "/"


def _is_person(request: Request) -> bool:
    """Whether somebody opens an address, by the browser's own word; not a look ahead, and no part of a page."""
    said = request.headers
    ahead = "prefetch" in said.get("sec-purpose", "") or "prefetch" in said.get("purpose", "")
    return request.method == "GET" and not ahead and said.get("sec-fetch-dest", "document") == "document"


def _inside(to: str) -> str:
    """An address of this home; its first page for any other.

    >>> _inside("/search?q=x"), _inside("//evil.example/"), _inside("https://evil.example")
    ('/search?q=x', '/', '/')
    """
    is_inside = to.startswith("/") and not to.startswith(("//", "/\\", "/enter")) and to.isprintable()
    return to if is_inside else "/"


def _here(request: Request) -> str:
    """The address of a request within this home."""
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def _is_part(request: Request) -> bool:
    """Whether a script of the page asks, which takes a part of it."""
    return "hx-request" in request.headers


def wants_page(request: Request) -> bool:
    """Whether a browser asks, for a person to look at the answer."""
    asked: Any = request.headers.get("accept", "")
    return "text/html" in asked and not request.url.path.startswith(("/api/", "/mcp"))
