"""
The console as an ASGI application: its routes, and what all requests share.

    every request   the right host, headers that allow nothing from elsewhere, one sentence for each error
    pages, JSON     the user who has signed in; a token for each change

Used by `server`, and by tests without a socket.
"""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Message, Receive, Scope, Send

from headrace.console.api import Api
from headrace.console.changes import BegunChanges
from headrace.console.live import Live
from headrace.console.pages import PAGES, ConsolePages
from headrace.console.problems import KNOWN, problem_of
from headrace.console.safety import HEADERS, Safety
from headrace.console.sessions import Sessions
from headrace.console.settings import ConsoleSettings
from headrace.console.verbs.catalogue import VERBS
from headrace.console.verbs.command import DiagnosticsBundle
from headrace.console.verbs.verb import Verb
from headrace.gateway.problems import Problem
from headrace.gateway.request import check_host

__all__ = ["Console"]

_STATIC: Final = Path(__file__).parent / "static"
_HOSTS: Final = ("localhost", "*.localhost")

Handler = Callable[[Request], Awaitable[Response]]


class Console:
    """What answers requests.

    Args:
        sessions: who has signed in; opened by the caller.
        settings: the limits.
        more: verbs about an application and alarms, if they are known.
        bundle: makes one for those who help; None: there is none.
    """

    def __init__(
        self,
        sessions: Sessions,
        settings: ConsoleSettings,
        more: Mapping[str, Verb] | None = None,
        bundle: DiagnosticsBundle | None = None,
    ) -> None:
        safety = Safety()
        verbs = {**VERBS, **(more or {})}
        self._changes = BegunChanges(settings.changes_max)
        self._pages = ConsolePages(sessions, safety, settings, verbs, self._changes, bundle)
        self._api = Api(sessions, safety, settings, verbs, self._changes)
        self._live = Live(sessions, safety, settings)
        self._hosts = {each.lower() for each in (*_HOSTS, settings.host, *settings.hosts)}
        pages, api = self._pages, self._api
        self._inside = Starlette(
            routes=[
                *(
                    Route(path, self._page(pages.show))
                    for path, one in PAGES.items()
                    if one.verb in verbs
                ),
                Route("/letters", self._page(pages.letters)),
                Route("/messages", self._page(pages.messages)),
                Route("/do/{noun}/{verb}", self._page(pages.change), methods=["POST"]),
                Route("/change", self._page(pages.going_on)),
                Route("/doctor/bundle", self._page(pages.bundle), methods=["POST"]),
                Route("/sign-in", self._page(pages.sign_in), methods=["GET", "POST"]),
                Route("/sign-out", self._page(pages.sign_out), methods=["POST"]),
                Route("/live", self._json(self._live.follow)),
                Route("/live/messages", self._json(self._live.messages)),
                Route("/api", self._json(api.verbs)),
                Route("/api/token", self._json(api.token)),
                Route("/api/{noun}/{verb}", self._json(api.ask), methods=["GET", "POST"]),
                Mount("/static", StaticFiles(directory=_STATIC)),
            ]
        )

    def stop(self) -> None:
        """Ends what would stay open."""
        self._live.stop()
        self._changes.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            return

        async def safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        try:
            check_host(Headers(scope=scope), self._hosts)
        except Problem as problem:
            await problem.response(scope, receive, safely)
            return
        await self._inside(scope, receive, safely)

    def _page(self, handler: Handler) -> Handler:
        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except KNOWN as error:
                return await self._pages.failed(request, problem_of(error))

        return answer

    def _json(self, handler: Handler) -> Handler:
        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except KNOWN as error:
                return problem_of(error).response

        return answer
