"""
What open pages get as it changes: an event a second, as long as the page is open.

    GET /live                  event: figures    data: {"in":"1,204","backlog":"17", …}
    GET /live/messages?topic=  event: messages   data: {"messages":[…], "left_out":0}

Used by `console`, which has the routes; the page's script writes each figure where it stands, and each message below
the last.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from headrace.console.safety import Safety
from headrace.console.sessions import Session, Sessions
from headrace.console.settings import ConsoleSettings
from headrace.console.verbs.broker import figures, look
from headrace.console.verbs.message import SHOWN_MAX, row_of
from headrace.figures.rates import rates
from headrace.figures.records import word
from headrace.figures.search import MessageFilter, require_content
from headrace.figures.words import when
from headrace.gateway.problems import Problem
from headrace_mq.admin.client import AdminClient
from headrace_mq.errors import MessageQueueError
from headrace_mq.message import QueueRef, Record

__all__ = ["Live"]

# A browser that was cut off comes back after this, when a restarted console may answer.
_RETRY_MS: Final = 2_000
# Queues of a topic that are read between two looks, each with a request; people cannot follow more.
_QUEUES_MAX: Final = 16


class Live:
    """All open streams.

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
        """Answers with a stream of figures."""
        return await self._stream(request, self._figures)

    async def messages(self, request: Request) -> Response:
        """Answers with a stream of the new messages of a topic."""
        topic, text = (request.query_params.get(name, "") for name in ("topic", "filter"))
        try:
            condition = MessageFilter(text) if text.strip() else None
        except ValueError as error:
            raise Problem(422, "invalid", "Invalid values", str(error)) from error
        return await self._stream(
            request, partial(self._messages, topic=topic, condition=condition)
        )

    async def _stream(
        self, request: Request, parts: Callable[[Session], AsyncIterator[bytes]]
    ) -> Response:
        name = self._safety.browser(request)
        session = await self._sessions.find(name)
        if session is None:
            raise Problem(401, "sign-in", "Unauthorized", "sign in first")
        if self._open >= self._settings.streams_max:
            raise Problem(
                503,
                "crowded",
                "Service unavailable",
                "as many pages with live figures as streams_max are open",
            )
        headers = {"X-Accel-Buffering": "no"}
        return StreamingResponse(
            self._counted(session, parts(session)), media_type="text/event-stream", headers=headers
        )

    async def _figures(self, session: Session) -> AsyncIterator[bytes]:
        before = await look(session.admin)
        while await self._goes_on(session):
            now = await look(session.admin)
            yield _event("figures", figures(rates(before, now)))
            before = now

    async def _messages(
        self, session: Session, topic: str, condition: MessageFilter | None = None
    ) -> AsyncIterator[bytes]:
        if condition is not None:
            await require_content(session.admin, topic, condition)
        behind = (await session.admin.tail(topic, 0)).behind
        while await self._goes_on(session):
            ends = (await session.admin.tail(topic, 0)).behind
            found = await _between(session.admin, behind, ends)
            new = sum(max(0, end - behind.get(queue, end)) for queue, end in ends.items())
            rows = [
                row_of(one)
                | {"stored": when(one.stored_at_ms), "key": word(one.key), "tag": word(one.tag)}
                for one in (found if condition is None else condition.select(found))
            ]
            yield _event("messages", {"messages": rows, "left_out": new - len(found)})
            behind = ends

    async def _counted(self, session: Session, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        self._open += 1
        try:
            yield b"retry: %d\n\n" % _RETRY_MS
            async for part in parts:
                yield part
        except MessageQueueError as error:
            # The connection's sentence; the browser comes back by itself.
            yield _event("away", str(await self._sessions.failed(session, error)))
        finally:
            self._open -= 1

    async def _goes_on(self, session: Session) -> bool:
        """Waits until the next look; False: the console stops, or the session has ended."""
        try:
            async with asyncio.timeout(self._settings.live_ms / 1_000):
                await self._stopped.wait()
        except TimeoutError:
            return await self._sessions.still(session)
        return False


def _event(name: str, told: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps(told, ensure_ascii=False)}\n\n".encode()


async def _between(
    admin: AdminClient, behind: Mapping[QueueRef, int], ends: Mapping[QueueRef, int]
) -> list[Record]:
    """The last messages between two looks, in the order in which they were stored."""
    moved = [queue for queue, end in ends.items() if end > behind.get(queue, end)][:_QUEUES_MAX]
    found: list[Record] = []
    for queue in moved:
        count = min(ends[queue] - behind[queue], max(1, SHOWN_MAX // len(moved)))
        found += await admin.read(queue, ends[queue] - count, count)
    return sorted(found, key=lambda one: one.stored_at_ms)
