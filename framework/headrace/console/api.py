"""
The console for programs: each verb as JSON, under the name that it has on the command line.

    GET  /api/topic/list?search=orders                {"topics": […], "page": 1, …}
    POST /api/group/reset {"group": …, "to": …}       does it
    POST … with "dry_run": true                       says what it would change

Used by `console`, which has the routes. A POST needs the token of GET /api/token, and its cookie.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headrace.console.changes import BegunChanges
from headrace.console.safety import TOKEN_HEADER, Safety
from headrace.console.sessions import Session, Sessions
from headrace.console.settings import ConsoleSettings
from headrace.console.verbs.catalogue import described, verb_at
from headrace.console.verbs.verb import Verb, values_of
from headrace.figures.words import named
from headrace.gateway.problems import Problem
from headrace.gateway.request import json_object

__all__ = ["Api"]

# A body of that size takes this long at 100 kbit/s.
_BODY_MS: Final = 10_000


class Api:
    """What programs get.

    Args:
        sessions: who has signed in.
        safety: cookies and tokens.
        settings: the limits.
        verbs: what can be asked and done.
        changes: those that go on.
    """

    def __init__(
        self,
        sessions: Sessions,
        safety: Safety,
        settings: ConsoleSettings,
        verbs: Mapping[str, Verb],
        changes: BegunChanges,
    ) -> None:
        self._sessions = sessions
        self._safety = safety
        self._settings = settings
        self._verbs = verbs
        self._changes = changes

    async def verbs(self, _: Request) -> Response:
        """Answers with all verbs and their fields."""
        return _json({"verbs": described(self._verbs)})

    async def token(self, request: Request) -> Response:
        """Answers with the token for changes, and gives the program its cookie."""
        name = self._safety.browser(request)
        new = name or self._safety.new_browser()
        answer = _json({"token": self._safety.token(new), "header": TOKEN_HEADER})
        if not name:
            self._safety.remember(request, answer, new)
        return answer

    async def ask(self, request: Request) -> Response:
        """Answers what a verb answers."""
        verb = verb_at(self._verbs, request.path_params["noun"], request.path_params["verb"])
        session = await self._session(request)
        if request.method == "GET":
            if verb.changes:
                raise Problem(
                    405, "post", "Method not allowed", f"{verb.name} changes something: send POST"
                )
            given: Mapping[str, Any] = dict(request.query_params)
            return await self._run(session, verb, values_of(verb, given))
        self._safety.check(request, request.headers.get(TOKEN_HEADER, ""))
        fields = await json_object(
            request, bytes_max=self._settings.body_bytes_max, within_ms=_BODY_MS
        )
        dry_run = fields.pop("dry_run", False)
        given = values_of(verb, fields)
        if dry_run is True and verb.look_ahead is not None:
            async with self._sessions.asking(session):
                return _json(await verb.look_ahead(session.admin, given))
        return await self._run(session, verb, given)

    async def _session(self, request: Request) -> Session:
        session = await self._sessions.find(self._safety.browser(request))
        if session is None:
            raise Problem(401, "sign-in", "Unauthorized", "sign in first: POST /sign-in")
        return session

    async def _run(self, session: Session, verb: Verb, given: Mapping[str, Any]) -> Response:
        async with self._sessions.asking(session):
            if verb.slow is None:
                return _json(await verb.run(session.admin, given))
            # As on a page: two at once would do it twice.
            return _json(await self._changes.start(session, verb, given, "").end())


def _json(value: Any) -> Response:
    fields = value.__dict__ if hasattr(value, "hindered") else value
    return Response(msgspec.json.encode(named(fields)), media_type="application/json")
