"""
The answer that stays open: an event at the start and at each change, a comment in between.

    id: "2f1c…"
    event: row
    data: {"account_id":"ada","balance":500}

The id is the `ETag` that the same answer has as JSON. A browser that connects again sends it as
`Last-Event-ID`, and gets no event until something has changed.

Used by the endpoints; the format is that of the HTML standard, section 9.2.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import StreamingResponse

from headrace._runtime.log import get_logger
from headrace.gateway.access.caller import Caller, caller_of
from headrace.gateway.problems import DATABASE_AWAY, Problem
from headrace.gateway.settings import GatewaySettings
from headrace.gateway.sse.changes import Changes

__all__ = ["EVENT_STREAM", "EventStreams", "ServerSentEvent", "wants_events"]

log = get_logger(__name__)

EVENT_STREAM: Final = "text/event-stream"
_BEAT: Final = b":\n\n"


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """An event of a stream.

    Attributes:
        event: its name.
        data: JSON on one line.
        tag: tells this from other data; becomes the event's id.
    """

    event: str
    data: bytes
    tag: str

    def encode(self) -> bytes:
        """Returns it as bytes of a stream."""
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (
            self.tag.encode(),
            self.event.encode(),
            self.data,
        )


def wants_events(request: Request) -> bool:
    """Returns whether a request asks for an event stream in its `Accept`."""
    accepted = ",".join(request.headers.getlist("accept")).split(",")
    named = (each.partition(";")[0].strip().lower() for each in accepted)
    return request.method == "GET" and EVENT_STREAM in named


class EventStreams:
    """All open streams of a gateway.

    Args:
        changes: wakes the streams of rows.
        settings: how many there may be, and how often a silent one sends a comment.
    """

    def __init__(self, changes: Changes, settings: GatewaySettings) -> None:
        self._changes = changes
        self._settings = settings
        self._open = 0

    def of_rows(
        self, request: Request, projection: str, read: Callable[[], Awaitable[ServerSentEvent]]
    ) -> StreamingResponse:
        """Returns a response that tells what `read` gives, now and whenever that has changed.

        Raises:
            Problem: 503, if there are too many streams, or the service stops.
        """
        known = request.headers.get("last-event-id")
        return self._response(self._rows(projection, read, known), caller_of(request))

    def of_one(
        self, request: Request, find: Callable[[], Awaitable[ServerSentEvent | None]]
    ) -> StreamingResponse:
        """Returns a response that ends with the first that `find` gives, or after `wait_ms_max`.

        Raises:
            Problem: 503, if there are too many streams, or the service stops.
        """
        return self._response(self._first(find), caller_of(request))

    def _response(self, parts: AsyncIterator[bytes], caller: Caller) -> StreamingResponse:
        if self._open >= self._settings.streams_max or self._changes.stopped:
            raise Problem(
                503,
                "crowded",
                "Service unavailable",
                "as many event streams as streams_max are open; the same request later is safe",
                headers={"Retry-After": str(self._settings.retry_after_s)},
            )
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(
            self._counted(parts, caller), media_type=EVENT_STREAM, headers=headers
        )

    async def _counted(self, parts: AsyncIterator[bytes], caller: Caller) -> AsyncIterator[bytes]:
        self._open += 1
        try:
            yield b"retry: %d\n\n" % (self._settings.retry_after_s * 1_000)
            async for part in parts:
                # A silent stream has a comment from time to time, and so ends soon after its token.
                if not await caller.still_valid():
                    return
                yield part
        finally:
            self._open -= 1

    async def _rows(
        self, projection: str, read: Callable[[], Awaitable[ServerSentEvent]], known: str | None
    ) -> AsyncIterator[bytes]:
        with self._changes.follow(projection) as follower:
            while not self._changes.stopped:
                try:
                    told = await read()
                except DATABASE_AWAY as error:
                    log.warning("rows cannot be read", projection=projection, error=str(error))
                    yield _BEAT
                    await asyncio.sleep(self._settings.stream_look_ms / 1_000)
                    continue
                if told.tag != known:
                    known = told.tag
                    yield told.encode()
                if not await follower.changed(self._settings.stream_beat_ms):
                    # Rows that an operator has mended change without the offsets, so they are read again.
                    yield _BEAT

    async def _first(
        self, find: Callable[[], Awaitable[ServerSentEvent | None]]
    ) -> AsyncIterator[bytes]:
        clock = asyncio.get_running_loop().time
        end = clock() + self._settings.wait_ms_max / 1_000
        beat = clock() + self._settings.stream_beat_ms / 1_000
        while clock() < end and not self._changes.stopped:
            try:
                told = await find()
            except DATABASE_AWAY as error:
                log.warning("a result cannot be read", error=str(error))
                told = None
            if told is not None:
                yield told.encode()
                return
            if clock() >= beat:
                beat = clock() + self._settings.stream_beat_ms / 1_000
                yield _BEAT
            await asyncio.sleep(self._settings.stream_look_ms / 1_000)
