"""Serve the web page: from the address in a browser to bytes.

This module finds out who visits, checks that a form is theirs, runs the view in a thread with their
home, and sets the headers. No page is cached by a browser, loads anything from another site, runs a
script contained in a text, or is shown in a frame of another site. Every change is a POST; one that
does not come from a page of this home is refused.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from perdure.agent.attachments import MAX_FILES
from perdure.errors import IdentityFault, IdentityRefused
from perdure.home import Home
from perdure.sharing.machines import Authority
from perdure.surfaces.agent_api.app import AgentApi
from perdure.surfaces.http import captures, responses
from perdure.surfaces.http.app import HttpApi, MountedApp, RequestHandler, catch_errors, read_client_address
from perdure.surfaces.http.responses import HttpRefusal
from perdure.surfaces.live_sessions import LiveSessions
from perdure.surfaces.web import chat_stream, render
from perdure.surfaces.web.routes import NAVIGATION, TABLE
from perdure.surfaces.web.views import settings
from perdure.surfaces.web.visits import (
    SESSION_S,
    BrowserSessions,
    EntryLinks,
    HtmlPage,
    RawContent,
    Redirect,
    UploadedFile,
    View,
    ViewResult,
    Visit,
    Visitor,
)
from perdure.types import Identity

if TYPE_CHECKING:  # only a home whose settings name a provider needs it
    from perdure.surfaces.web.sign_in import OpenIdSignIn

_PROVIDER_PATH = "/enter/openid"
_BACK_PATH = "/enter/openid/back"
_SIGN_IN_S = 600  # within which a person must have signed in at the provider
_NOTICE_CHARS = 300
_MAX_FIELDS = 2_000  # of one form
_TOKEN = "token"
_PRIVATE_FIELDS = (_TOKEN, "secret")  # fields that are never shown again
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
_CACHE_HEADERS = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}
_ERROR_TITLES = {401: "Sign in", 403: "Not allowed", 404: "Page not found", 429: "Too many requests"}
_UNKNOWN_SECRET = "This is not the secret of a registered machine."
_SESSION_ENDED = "Your session has ended, and nothing was changed. Sign in again; your text is below."
_STALE_LINK = "This link was already used, or is older than ten minutes. `perdure page` prints a new link."
_FOREIGN_FORM = (
    "This form is not from a page of this home, or it is older than your session. Go back and reload the page."
)


@dataclass(frozen=True, slots=True)
class WebForm:
    """A form as it came."""

    fields: dict[str, tuple[str, ...]]
    files: tuple[UploadedFile, ...] = ()


@dataclass
class WebApp:
    """The pages of a running server."""

    api: HttpApi
    sessions: BrowserSessions
    cookie_name: str  # one name per home: homes on one machine share cookies, whatever their ports
    is_tls: bool
    live: LiveSessions
    sign_in: OpenIdSignIn | None = None
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))

    def build_routes(self) -> list[BaseRoute]:
        """Return every route."""
        views = [Route(view.path, self._make_endpoint(view), methods=[view.method]) for view in TABLE]
        return [
            Route("/static/{digest}/{name}", self._send_asset),
            Route("/enter", self._catch_errors(self._show_enter_form)),
            Route("/enter", self._catch_errors(self._enter_by_secret), methods=["POST"]),
            Route(_PROVIDER_PATH, self._catch_errors(self._go_to_provider)),
            Route(_BACK_PATH, self._catch_errors(self._enter_by_provider)),
            Route("/enter/{secret}", self._catch_errors(self._enter_by_link)),
            Route("/leave", self._catch_errors(self._leave), methods=["POST"]),
            Route("/events", self._catch_errors(self._stream_events)),
            Route("/chat/{session}/events", self._catch_errors(self._stream_chat)),
            *views,
        ]

    @property
    def _notice_cookie(self) -> str:
        """The name of the cookie for a notice that is shown once."""
        return f"{self.cookie_name}-notice"

    @property
    def _sign_in_cookie(self) -> str:
        """The name of the cookie with the secret of a sign-in at an OpenID provider."""
        return f"{self.cookie_name}-sign-in"

    # visitors --------------------------------------------------------------------------------------------

    async def _find_visitor(self, request: Request) -> Visitor | None:
        secret = request.cookies.get(self.cookie_name, "")
        if not secret:
            return None
        return await self.api.worker_pools["identity"].run_task(lambda: self.sessions.find_visitor(secret))

    async def _require_visitor(self, request: Request) -> Visitor:
        """Return the visitor. Raises Refused (401, 429)."""
        visitor = await self._find_visitor(request)
        if visitor is None:
            raise HttpRefusal(401, "unauthorized", "Your session has ended.")
        rate_key = visitor.identity.machine_id or self.cookie_name
        if wait_s := self.api.request_rates.take_token(rate_key, self.api.now_s()):
            raise responses.refuse_for_now("too-many", "You send too many requests.", after_s=wait_s, status=429)
        return visitor

    async def _show_enter_form(self, request: Request) -> Response:
        """Show the form for a credential; redirect a visitor who already has a session."""
        target = _to_local_address(request.query_params.get("to", "/"))
        if await self._find_visitor(request) is not None:
            return RedirectResponse(target, 303, HEADERS)
        return self._render_enter_page(request, target)

    async def _enter_by_secret(self, request: Request) -> Response:
        """Let in a visitor who sends the secret of a machine."""
        _check_origin(request)
        form = (await self._read_form(request)).fields
        target = _to_local_address(form.get("to", ("/",))[-1])
        secret = form.get("secret", ("",))[-1].strip()
        visitor = await self.api.worker_pools["identity"].run_task(lambda: self.sessions.enter_by_credential(secret))
        if visitor is None:
            self._count_guess(request)
            return self._render_enter_page(request, target, _UNKNOWN_SECRET, 401)
        return self._let_in(visitor, target)

    async def _enter_by_link(self, request: Request) -> Response:
        """Let in a visitor who followed a link."""
        target = _to_local_address(request.query_params.get("to", "/"))
        secret = request.path_params["secret"]
        if not _is_person(request):  # a program that previews links must not use one up
            return Response(status_code=204, headers=HEADERS)
        visitor = await self.api.worker_pools["identity"].run_task(lambda: self.sessions.enter_by_link(secret))
        if visitor is not None:
            return self._let_in(visitor, target)
        if await self._find_visitor(request) is not None:
            return RedirectResponse(target, 303, HEADERS)
        self._count_guess(request)
        return self._render_enter_page(request, target, _STALE_LINK, 401)

    def _render_enter_page(self, request: Request, target: str, message: str = "", status: int = 200) -> Response:
        provider_name = self.sign_in.provider.name if self.sign_in else ""
        values = {"title": "Enter", "to": target, "said": message, "openid": provider_name}
        return self._render_page(request, None, HtmlPage("enter.html", values, status))

    async def _go_to_provider(self, request: Request) -> Response:
        """Send a visitor to the OpenID provider, with the secret of this sign-in in a cookie."""
        target = _to_local_address(request.query_params.get("to", "/"))
        if self.sign_in is None or not _is_person(request):
            return Response(status_code=204, headers=HEADERS)
        secret, provider = secrets.token_urlsafe(32), self.sign_in.provider
        return_to = self.sign_in.get_return_address(_to_origin(request, is_tls=self.is_tls), _BACK_PATH)
        try:
            address = await self.api.worker_pools["sign-in"].run_task(lambda: provider.make_address(secret, return_to))
        except IdentityFault as error:
            return self._render_enter_page(request, target, f"{error.detail}.", 503)
        response = RedirectResponse(address, 303, HEADERS)
        response.set_cookie(
            self._sign_in_cookie, f"{secret}.{quote(target, safe='')}", max_age=_SIGN_IN_S, path=_PROVIDER_PATH,
            httponly=True, samesite="lax", secure=self.is_tls,
        )  # fmt: skip
        return response

    async def _enter_by_provider(self, request: Request) -> Response:
        """Let in a visitor who comes back from the OpenID provider, if a user is linked to them."""
        secret, _, quoted_target = request.cookies.get(self._sign_in_cookie, "").partition(".")
        target, provided = _to_local_address(unquote(quoted_target)), self.sign_in
        if provided is None:
            return Response(status_code=204, headers=HEADERS)
        return_to = provided.get_return_address(_to_origin(request, is_tls=self.is_tls), _BACK_PATH)
        params = dict(request.query_params)

        def enter() -> Visitor:
            identity = provided.identify(secret, return_to, params)
            return self.sessions.begin_session(identity, lasts_s=provided.session_s)

        try:
            with self.api.count_stranger(request):
                visitor = await self.api.worker_pools["sign-in"].run_task(enter)
        except IdentityFault as error:
            status = 403 if isinstance(error, IdentityRefused) else 503
            response = self._render_enter_page(request, target, error.detail, status)
        else:  # a redirect would be followed without the cookie: it began at another site
            response = self._render_page(request, None, HtmlPage("entered.html", {"title": "Signed in", "to": target}))
            self._set_session(response, visitor, provided.session_s)
        response.delete_cookie(self._sign_in_cookie, path=_PROVIDER_PATH, httponly=True, secure=self.is_tls)
        return response

    def _count_guess(self, request: Request) -> None:
        address = request.client.host if request.client else ""
        if wait_s := self.api.wrong_secret_rates.take_token(address, self.api.now_s()):
            raise responses.refuse_for_now(
                "too-many", "Too many failed sign-ins from this address.", after_s=wait_s, status=429
            )

    def _let_in(self, visitor: Visitor, target: str) -> Response:
        response = RedirectResponse(target, 303, HEADERS)
        self._set_session(response, visitor, SESSION_S)
        return response

    def _set_session(self, response: Response, visitor: Visitor, lasts_s: float) -> None:
        response.set_cookie(
            self.cookie_name, visitor.secret, max_age=int(lasts_s), httponly=True, samesite="strict", secure=self.is_tls
        )

    async def _leave(self, request: Request) -> Response:
        """End the session of this browser, or every session of its user."""
        visitor = await self._require_visitor(request)
        form = (await self._read_own_form(request, visitor)).fields
        end_sessions = self.sessions.end_all_sessions if "everywhere" in form else self.sessions.end_session
        await self.api.worker_pools["identity"].run_task(lambda: end_sessions(visitor))
        response = RedirectResponse("/enter", 303, HEADERS)
        response.delete_cookie(self.cookie_name, httponly=True, samesite="strict", secure=self.is_tls)
        return response

    async def _stream_events(self, request: Request) -> Response:
        """Stream the visitor's own events as they happen."""
        identity = (await self._require_visitor(request)).identity

        async def is_still_valid() -> bool:
            visitor = await self._find_visitor(request)
            return visitor is not None and visitor.identity == identity

        await self.api.worker_pools["read"].run_task(lambda: self.api.server.activity_feed.add_listener(identity.user))
        return self.api.server.subscribers.open_stream(identity, is_still_valid)

    async def _stream_chat(self, request: Request) -> Response:
        """Stream what happens in a session of the visitor's own as it happens."""
        identity = (await self._require_visitor(request)).identity
        self._check_own(request, identity)

        async def is_still_valid() -> bool:
            visitor = await self._find_visitor(request)
            return visitor is not None and visitor.identity == identity

        return chat_stream.open_stream(self.live, request.path_params["session"], is_still_valid)

    def _check_own(self, request: Request, identity: Identity) -> None:
        """Raise Refused (403) if the visitor may not talk with the agent."""
        if message := self.live.find_refusal(identity.user, read_client_address(request)):
            raise HttpRefusal(403, "forbidden", message)

    # forms ------------------------------------------------------------------------------------------------

    async def _read_form(self, request: Request, max_bytes: int = captures.MAX_JSON_BYTES) -> WebForm:
        """Return the fields of a form, and its files. Raises Refused (400, 408, 413)."""
        limits = captures.BodyLimits(max_bytes)
        body = await captures.read_body(request, self.api.server.home / "cache", limits)
        with body.file:
            raw = body.read_bytes()
        try:
            pairs, files = await _parse_form(request, raw)
        except (ValueError, MultiPartException):
            raise responses.refuse_usage("the form could not be read") from None
        fields: dict[str, tuple[str, ...]] = {}
        for name, value in pairs:
            fields[name] = (*fields.get(name, ()), value.replace("\r\n", "\n"))
        return WebForm(fields, files)

    async def _read_own_form(
        self, request: Request, visitor: Visitor, max_bytes: int = captures.MAX_JSON_BYTES
    ) -> WebForm:
        """Return the visitor's form. Raises Refused (403) if the form is not theirs."""
        _check_origin(request)
        read = await self._read_form(request, max_bytes)
        form = read.fields
        (*_, token) = form.pop(_TOKEN, ("",))
        if not hmac.compare_digest(token.encode(), visitor.token.encode()):
            raise HttpRefusal(403, "forbidden", _FOREIGN_FORM, extra_fields=_collect_typed(form))
        return read

    async def _add_typed(self, request: Request, refused: HttpRefusal) -> HttpRefusal:
        """Add the typed text of a form to its refusal, for a page of this home only."""
        _check_origin(request)
        return replace(refused, extra_fields=_collect_typed((await self._read_form(request)).fields))

    # views ------------------------------------------------------------------------------------------------

    def _make_endpoint(self, view: View) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            if view.method == "POST" and await self._find_visitor(request) is None:
                raise await self._add_typed(request, HttpRefusal(401, "unauthorized", _SESSION_ENDED))
            visitor = await self._require_visitor(request)
            if view.is_admin and not visitor.identity.is_admin:
                raise HttpRefusal(403, "forbidden", "Only an admin of this home may see this page.")
            if view.is_own:
                self._check_own(request, visitor.identity)
            form = await self._read_own_form(request, visitor, view.max_bytes) if view.method == "POST" else WebForm({})
            return await self.api.worker_pools[view.pool].run_task(lambda: self._run_view(view, request, visitor, form))

        return self._catch_errors(respond)

    def _run_view(self, view: View, request: Request, visitor: Visitor, form: WebForm) -> Response:
        """Run a view in a thread and return its response."""
        with self.api.homes.lend(visitor.identity, read_only=view.pool not in ("write", "chat")) as home:
            last_values = {name: values[-1] for name, values in form.fields.items()}
            visit = Visit(
                self.api.server,
                visitor.identity,
                home,
                dict(request.path_params),
                request.query_params,
                last_values,
                self.now(),
                self.live,
                form.fields,
                form.files,
            )
            return self._to_response(request, visitor, view.respond(visit), nav=view.nav)

    def _to_response(self, request: Request, visitor: Visitor, result: ViewResult, nav: str) -> Response:
        if isinstance(result, RawContent):
            return Response(result.body, 200, {**HEADERS, **result.headers}, result.media_type)
        if isinstance(result, Redirect):
            response = RedirectResponse(_to_local_address(result.target), 303, HEADERS)
            if result.notice:
                quoted_notice = quote(result.notice[:_NOTICE_CHARS])
                response.set_cookie(
                    self._notice_cookie, quoted_notice, max_age=60, httponly=True, samesite="strict", secure=self.is_tls
                )
            return response
        return self._render_page(request, visitor, result, nav=nav)

    def _render_page(self, request: Request, visitor: Visitor | None, html_page: HtmlPage, nav: str = "") -> Response:
        """Render a page together with the values that every page needs."""
        notice = (
            unquote(request.cookies.get(self._notice_cookie, "")) if visitor and not _is_part_request(request) else ""
        )
        context = {
            "visitor": visitor.identity if visitor else None,
            "csrf": visitor.token if visitor else "",
            "notice": notice,
            "here": _to_address(request),
            "nav": nav,
            "setting": settings.BY_NAME.get(nav),
            "now": self.now(),
            "navigation": [entry for entry in NAVIGATION if entry.name != "chat" or self._may_chat(request, visitor)],
            **html_page.values,
        }
        response = Response(
            render.render_page(html_page.template, context), html_page.status, HEADERS, "text/html; charset=utf-8"
        )
        if notice:
            response.delete_cookie(self._notice_cookie, httponly=True, samesite="strict", secure=self.is_tls)
        return response

    def _may_chat(self, request: Request, visitor: Visitor | None) -> bool:
        address = read_client_address(request)
        return visitor is not None and not self.live.find_refusal(visitor.identity.user, address)

    # errors ----------------------------------------------------------------------------------------------

    def _catch_errors(self, respond: RequestHandler) -> RequestHandler:
        return catch_errors(respond, self.show_error)

    async def show_error(self, request: Request, error: Exception) -> Response:
        """Return the error page; send a visitor without a session to the enter form."""
        refused = responses.to_refusal(error)
        self.api.log_failure(request, error, client="page")
        if refused.status == 401 and not refused.extra_fields and not _is_part_request(request):
            target = _to_address(request) if request.method == "GET" else "/"
            return RedirectResponse(f"/enter?{urlencode({'to': target})}", 303, HEADERS)
        visitor = await self._find_visitor(request) if refused.status != 401 else None
        values = {
            "title": _ERROR_TITLES.get(refused.status, "Request failed"),
            "said": refused.message,
            "status": refused.status,
            "typed": refused.extra_fields.get("typed", {}),
            "to": _find_referrer(request),
        }
        response = self._render_page(request, visitor, HtmlPage("error.html", values, refused.status))
        response.headers.update({name: value for name, value in refused.headers.items() if name == "Retry-After"})
        return response

    async def show_not_found(self, request: Request) -> Response:
        """Return the page for an address that does not exist."""
        if await self._find_visitor(request) is None:
            return await self.show_error(request, HttpRefusal(401, "unauthorized", ""))
        return await self.show_error(request, HttpRefusal(404, "not-found", "There is no page at this address."))

    async def _send_asset(self, request: Request) -> Response:
        asset = render.read_assets().get(request.path_params["name"])
        if asset is None:
            return Response(status_code=404, headers=HEADERS)
        return Response(asset.body, 200, _CACHE_HEADERS, asset.media_type)


async def _parse_form(request: Request, raw: bytes) -> tuple[list[tuple[str, str]], tuple[UploadedFile, ...]]:
    """Return (the fields, the files) of a form. Raises ValueError, MultiPartException."""
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        return parse_qsl(raw.decode(), keep_blank_values=True, max_num_fields=_MAX_FIELDS), ()

    async def send_once() -> AsyncGenerator[bytes, None]:
        yield raw

    parser = MultiPartParser(
        request.headers, send_once(), max_fields=_MAX_FIELDS, max_files=MAX_FILES, max_part_size=len(raw)
    )
    form = await parser.parse()
    try:
        items = form.multi_items()
        fields = [(name, value) for name, value in items if isinstance(value, str)]
        uploads = [value for _, value in items if not isinstance(value, str)]
        return fields, tuple([UploadedFile(one.filename or "", await one.read()) for one in uploads if one.filename])
    finally:
        await form.close()


def _to_origin(request: Request, *, is_tls: bool) -> str:
    """Return the address of this home as the browser asked for it; other names were refused before."""
    return f"{'https' if is_tls else 'http'}://{request.headers.get('host', '')}"


def _check_origin(request: Request) -> None:
    """Raise Refused (403) if the browser says that a page of another site sent this form."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None and site not in ("same-origin", "none"):
        raise HttpRefusal(403, "forbidden", _FOREIGN_FORM)
    if site is None and origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise HttpRefusal(403, "forbidden", _FOREIGN_FORM)


def _collect_typed(form: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Return the typed text of a form, so that it can be given back to its writer."""
    fields = {name: values[-1] for name, values in form.items() if name not in _PRIVATE_FIELDS and values[-1].strip()}
    return {"typed": fields} if fields else {}


def _find_referrer(request: Request) -> str:
    """Return the page of this home that a request came from; "/" if that is not known."""
    referrer = urlsplit(request.headers.get("referer", ""))
    is_own = referrer.netloc == request.headers.get("host")
    return _to_local_address(referrer.path + (f"?{referrer.query}" if referrer.query else "")) if is_own else "/"


def _is_person(request: Request) -> bool:
    """Return True if the browser says that a person opens an address: no prefetch, and not a part of a page."""
    headers = request.headers
    is_prefetch = "prefetch" in headers.get("sec-purpose", "") or "prefetch" in headers.get("purpose", "")
    return request.method == "GET" and not is_prefetch and headers.get("sec-fetch-dest", "document") == "document"


def _to_local_address(address: str) -> str:
    """Return an address of this home unchanged, and "/" for any other.

    >>> [_to_local_address(url) for url in ("/search?q=x", "//evil.example/", "https://evil.example")]
    ['/search?q=x', '/', '/']
    """
    is_inside = address.startswith("/") and not address.startswith(("//", "/\\", "/enter")) and address.isprintable()
    return address if is_inside else "/"


def _to_address(request: Request) -> str:
    """Return the address of a request within this home."""
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def _is_part_request(request: Request) -> bool:
    """Return True if a script of the page asks, which takes only a part of the answer."""
    return "hx-request" in request.headers


def wants_page(request: Request) -> bool:
    """Return True if a browser asks, so that a person will look at the answer."""
    accept: Any = request.headers.get("accept", "")
    return "text/html" in accept and not request.url.path.startswith(("/api/", "/mcp", "/v1/"))


class WebMount:
    """Everything a server needs to serve the page, and the links that let its owner in."""

    def __init__(self, home: Home, authority: Authority, live: LiveSessions, *, is_tls: bool) -> None:
        """live: the sessions of this home's own user, which the page and the agent's API share."""
        self.links = EntryLinks()
        self._live = live
        self._authority = authority
        self._owner = Identity(home.user, home.config.machine, "", is_admin=True)
        self._cookie = "perdure-" + hashlib.sha256(os.fsencode(home.path)).hexdigest()[:8]
        self._is_tls = is_tls
        self._sign_in: OpenIdSignIn | None = None
        if home.config.identity.openid.issuer:
            from perdure.surfaces.web.sign_in import open_sign_in

            self._sign_in = open_sign_in(home, authority)

    def __call__(self, api: HttpApi) -> MountedApp:
        """Return the page's part of an application."""
        sessions = BrowserSessions(api.request_store, self._authority, self._owner, self.links)
        web_app = WebApp(api, sessions, self._cookie, self._is_tls, self._live, self._sign_in)
        agent_api = AgentApi(api, self._live)
        return MountedApp([*web_app.build_routes(), *agent_api.build_routes()], wants_page, web_app.show_not_found)
