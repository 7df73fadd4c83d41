"""
Figures of the overview as they change: an event a second, as long as the page is open.

    event: figures
    data: {"in":"1,204","backlog":"17", …}

Used by `console`, which has the route; the page's script writes each figure where it stands.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from headrace.console.safety import Safety
from headrace.console.sessions import Session, Sessions
from headrace.console.settings import ConsoleSettings
from headrace.console.verbs.broker import figures, look
from headrace.figures.rates import rates
from headrace.gateway.problems import Problem
from headrace_mq.errors import MessageQueueError

__all__ = ["Live"]

# A browser that was cut off comes back after this, when a restarted console may answer.
_RETRY_MS: Final = 2_000


class Live:
    """All open streams of figures.

    Args:
        sessions: who has signed in.
        safety: knows a browser by its cookie.
        settings: how often, and how many at once.
    """

    def __init__(self, sessions: Sessions, safety: Safety, settings: ConsoleSettings) -> None:
        self._sessions = sessions
        self._safety = safety
        self._settings = settings
        self._open = 0
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Ends all streams."""
        self._stopped.set()

    async def follow(self, request: Request) -> Response:
        """Answers with a stream."""
        name = self._safety.browser(request)
        session = await self._sessions.find(name)
        if session is None:
            raise Problem(401, "sign-in", "Unauthorized", "sign in first")
        if self._open >= self._settings.streams_max:
            raise Problem(
                503, "crowded", "Service unavailable", "as many overviews as streams_max are open"
            )
        headers = {"X-Accel-Buffering": "no"}
        return StreamingResponse(
            self._figures(session), media_type="text/event-stream", headers=headers
        )

    async def _figures(self, session: Session) -> AsyncIterator[bytes]:
        self._open += 1
        try:
            yield b"retry: %d\n\n" % _RETRY_MS
            before = await look(session.admin)
            while not await self._pause() and await self._sessions.still(session):
                now = await look(session.admin)
                told = json.dumps(figures(rates(before, now)), ensure_ascii=False)
                yield f"event: figures\ndata: {told}\n\n".encode()
                before = now
        except MessageQueueError as error:
            # The connection's sentence; the browser comes back by itself.
            yield f"event: away\ndata: {json.dumps(str(await self._sessions.failed(session, error)))}\n\n".encode()
        finally:
            self._open -= 1

    async def _pause(self) -> bool:
        """Waits until the next look; True: the console stops."""
        try:
            async with asyncio.timeout(self._settings.live_ms / 1_000):
                await self._stopped.wait()
        except TimeoutError:
            return False
        return True
