"""
The gateway as an ASGI application: its routes, and what all requests have in common.

Used by `server`; calls the endpoints.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from time import perf_counter
from typing import Final

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from headrace._runtime.log import get_logger
from headrace._runtime.work import Durations
from headrace.app import App, RunningApp
from headrace.errors import HeadraceError
from headrace.gateway import overview
from headrace.gateway.access.audit import AccessAudit
from headrace.gateway.access.authentication import Authentication
from headrace.gateway.access.caller import caller_of
from headrace.gateway.access.door import FrontDoor
from headrace.gateway.access.permissions import Permissions
from headrace.gateway.catalogue import Catalogue
from headrace.gateway.commands import Commands
from headrace.gateway.openapi.document import document
from headrace.gateway.problems import DATABASE_AWAY, Problem
from headrace.gateway.queries import Queries
from headrace.gateway.readiness import Check, Readiness
from headrace.gateway.request import check_framing, check_host
from headrace.gateway.results import Results
from headrace.gateway.settings import GatewaySettings
from headrace.gateway.sse.changes import Changes
from headrace.gateway.sse.stream import EventStreams

__all__ = ["BROKER", "Gateway"]

log = get_logger(__name__)

# The check that tells a broker that is away from a command that takes long.
BROKER: Final = "broker"

# What requests are counted by; the paths of others are as their clients like.
_ROUTES: Final = (
    "commands", "results", "projections", "health", "ready", "openapi.json", "docs",
)  # fmt: skip
_OTHER: Final = "other"
# Names of this machine for itself.
_HOSTS: Final = ("localhost", "*.localhost")
_CROWDED: Final = "as many requests as requests_max are at work; the same request later is safe"
_STOPPING: Final = (
    "the service stops before the request is done, and its outcome is unknown; sending it again with"
    " the same Idempotency-Key is safe"
)
_NO_DATABASE: Final = (
    "the database of the read models cannot be reached; the same request later is safe"
)


class Gateway:
    """An ASGI application in front of a running one.

    Args:
        app: the application.
        running: the same, at work in this process and event loop.
        settings: every limit.
        checks: what `/ready` looks at besides the read models; `broker` also tells 503 from 504.

    Raises:
        DefinitionError: the OpenAPI document cannot be made of the application's models.
        HeadraceError: the file of tokens cannot be used, or the application allows roles and there is none.

    Attributes:
        authentication: finds out who clients are.
        requests: how many were answered, by route and status; a route is the first part of a path, or "other".
        times: how long they took until their answer began, by route; empty where `measure` was not called.
    """

    def __init__(
        self,
        app: App,
        running: RunningApp,
        settings: GatewaySettings | None = None,
        checks: Mapping[str, Check] | None = None,
    ) -> None:
        settings = settings or GatewaySettings()
        catalogue = Catalogue(app.command_types)
        self._settings = settings
        self._running = running
        self._hosts = {each.lower() for each in (*_HOSTS, settings.host, *settings.hosts) if each}
        self._at_work = 0
        self.requests: Counter[tuple[str, int]] = Counter()
        self.times: dict[str, Durations] = {}
        self.authentication = _authentication(app, settings)
        audit = AccessAudit()
        permissions = Permissions(app.allowances, audit)

        async def read_models() -> None:
            for name in app.projections:
                await running.read_models.state(name)

        self._readiness = Readiness({**(checks or {}), "read_models": read_models}, settings)
        commands = Commands(
            catalogue=catalogue,
            bus=running.bus,
            serializer=running.serializer,
            settings=settings,
            permissions=permissions,
            broker_away=self._broker_away,
        )
        self._changes = Changes(running.read_models, look_ms=settings.stream_look_ms)
        streams = EventStreams(self._changes, settings)
        queries = Queries(
            app=app, running=running, settings=settings, permissions=permissions, streams=streams
        )
        results = Results(
            store=running.store, settings=settings, permissions=permissions, streams=streams
        )
        described = document(
            title=app.name, catalogue=catalogue, projections=app.projections, settings=settings
        )
        self._openapi = msgspec.json.encode(described)
        self._docs = overview.page(described)
        self._starlette = Starlette(
            routes=self._routes(commands, results, queries),
            middleware=[*_cross_origin(settings.origins), *_door(self.authentication, audit)],
            exception_handlers={
                Problem: _answer_problem,
                HTTPException: _answer_http,
                **dict.fromkeys(DATABASE_AWAY, self._answer_outage),
                Exception: _answer_defect,
            },
        )
        self._starlette.router.redirect_slashes = False

    def _routes(self, commands: Commands, results: Results, queries: Queries) -> list[Route]:
        return [
            Route("/commands/{name}", commands.post, methods=["POST"]),
            Route("/results", results.get),
            Route("/projections/{name}", queries.many),
            Route("/projections/{name}/{key:path}", queries.one),
            Route("/health", self._health),
            Route("/ready", self._ready),
            Route("/openapi.json", self._describe),
            Route("/docs", self._show),
        ]

    def measure(self, new: Callable[[], Durations]) -> None:
        """Measures from now on how long requests take, in what `new` returns."""
        self.times = {route: new() for route in (*_ROUTES, _OTHER)}

    def _noting(self, path: str, send: Send) -> Send:
        """Returns what sends an answer, and counts it."""
        first = path.split("/", 2)[1] if path.startswith("/") else ""
        route, since_s = first if first in _ROUTES else _OTHER, perf_counter()

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.requests[route, message["status"]] += 1
                if self.times:
                    self.times[route].add(perf_counter() - since_s)
            await send(message)

        return noted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request; errors become answers and are never raised."""
        if scope["type"] == "http":
            send = self._noting(scope.get("path", ""), send)
            try:
                headers = Headers(scope=scope)
                check_framing(headers)
                check_host(headers, self._hosts)
            except Problem as problem:
                await problem.response(scope, receive, send)
                return
        if self._at_work >= self._settings.requests_max and scope.get("path") != "/health":
            await self._later("crowded", _CROWDED)(scope, receive, send)
            return
        begun = False

        async def answer(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        self._at_work += 1
        try:
            await self._starlette(scope, receive, answer)
        except asyncio.CancelledError:
            if begun:
                raise
            # The server cancels slow requests when it stops; the task ends with this answer.
            await self._later("stopping", _STOPPING)(scope, receive, send)
        except Exception:
            # The client has its answer already; Starlette raises an unexpected error again.
            log.exception("request failed", method=scope.get("method"), path=scope.get("path"))
        finally:
            self._at_work -= 1

    def stop(self) -> None:
        """Ends all event streams; their clients connect again, to the next service."""
        self._changes.stop()
        self.authentication.stop()

    def _later(self, kind: str, sentence: str) -> Response:
        retry = {"Retry-After": str(self._settings.retry_after_s)}
        return Problem(503, kind, "Service unavailable", sentence, headers=retry).response

    async def _broker_away(self) -> bool:
        return await self._readiness.away(BROKER)

    async def _health(self, request: Request) -> Response:
        watch = self._running.watch
        alarms = () if watch is None else watch.alarms.current
        # Errors of the parts may contain an address or a password, so they are in the log only.
        readers = {
            name: {"state": reader.status.state.value, "since": reader.status.since}
            for name, reader in self._running.readers.items()
        }
        reason = self._running.read_only
        status = "alive" if reason is None else f"read-only: {reason}"
        answer: dict[str, object] = {"status": status}
        if self._shows_parts(request):
            answer |= {"alarms": alarms, "readers": readers}
        return _json(msgspec.json.encode(answer))

    def _shows_parts(self, request: Request) -> bool:
        """Whether a client may know what the application consists of, and how its parts are."""
        return not self.authentication.required or caller_of(request).principal is not None

    async def _ready(self, request: Request) -> Response:
        missing = await self._readiness.missing()
        if not self._shows_parts(request):
            if not missing:
                return _json(msgspec.json.encode({"status": "ready"}))
            raise self._not_ready("send a token to see which part is not ready")
        parts = {part: missing.get(part, "ready") for part in self._readiness.parts}
        if not missing:
            return _json(msgspec.json.encode({"status": "ready", "parts": parts}))
        sentence = "; ".join(f"{part}: {sentence}" for part, sentence in missing.items())
        raise self._not_ready(sentence, parts=parts)

    def _not_ready(self, sentence: str, **members: object) -> Problem:
        retry = {"Retry-After": str(self._settings.retry_after_s)}
        return Problem(503, "not-ready", "Not ready", sentence, headers=retry, **members)

    async def _describe(self, _request: Request) -> Response:
        return _json(self._openapi)

    async def _show(self, _request: Request) -> Response:
        headers = {"Content-Security-Policy": overview.POLICY, "X-Content-Type-Options": "nosniff"}
        return HTMLResponse(self._docs, headers=headers)

    async def _answer_outage(self, request: Request, error: Exception) -> Response:
        log.warning("database away", path=request.url.path, error=str(error))
        return self._later("unavailable", _NO_DATABASE)


def _cross_origin(origins: Collection[str]) -> list[Middleware]:
    """What pages of other origins may send and see; without cookies, which the gateway does not use."""
    if not origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            allow_headers=[
                "Authorization",
                "Content-Type",
                "Idempotency-Key",
                "If-None-Match",
                "Last-Event-ID",
                "Prefer",
            ],
            expose_headers=[
                "ETag",
                "Location",
                "Preference-Applied",
                "Retry-After",
                "WWW-Authenticate",
            ],
        )
    ]


def _authentication(app: App, settings: GatewaySettings) -> Authentication:
    authentication = Authentication(settings, app.name)
    if app.allowances.declared and not authentication.required:
        raise HeadraceError(
            f"{app.name} allows roles (app.allow), and without tokens no client has one: set http.tokens"
            " (--tokens FILE; `headrace token make NAME --role ROLE --tokens FILE` writes it)"
        )
    return authentication


def _door(authentication: Authentication, audit: AccessAudit) -> list[Middleware]:
    if not authentication.required:
        return []
    return [Middleware(FrontDoor, authentication=authentication, audit=audit)]


async def _answer_problem(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return error.response


async def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = {404: "not-found", 405: "method"}
    return Problem(
        error.status_code,
        words.get(error.status_code, "http"),
        error.detail,
        f"{request.method} {request.url.path[:200]}: {error.detail}; see /docs",
        headers=error.headers,
    ).response


async def _answer_defect(_request: Request, _error: Exception) -> Response:
    return Problem(
        500, "defect", "Internal error", "this is a defect; the service's log has the whole story"
    ).response


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json", headers={"Cache-Control": "no-store"})
