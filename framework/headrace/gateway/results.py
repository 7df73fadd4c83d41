"""
`GET /results?aggregate_id=A&command_id=C`: the result of a command that was sent before.

    stored   as `POST /commands/{name}` answers      not stored yet   404

As JSON, or as an event stream that ends with the result. The endpoint behind the route, and the answer that
a result makes; it reads the event store.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headrace._runtime.log import get_logger
from headrace.commands.answer import result_of
from headrace.domain.identity import check_id
from headrace.errors import AggregateNotFound, CommandNotAllowed
from headrace.gateway import request as reading
from headrace.gateway.access.permissions import Permissions
from headrace.gateway.problems import Problem, invalid
from headrace.gateway.settings import GatewaySettings
from headrace.gateway.sse.stream import EventStreams, ServerSentEvent, wants_events
from headrace.results import CommandResult, decode_reply, encode_reply
from headrace.stores.base import EventStore

__all__ = ["Results", "address_of", "answer_of"]

log = get_logger(__name__)

_IDS: Final = ("aggregate_id", "command_id")


def address_of(aggregate_id: str, command_id: str) -> str:
    """Returns the path and query of a command's result."""
    return f"/results?{urlencode({'aggregate_id': aggregate_id, 'command_id': command_id})}"


class Results:
    """The endpoint of all results.

    Args:
        store: the event store, which has them.
        settings: bounds and waits.
        permissions: whose results clients may see.
        streams: of the gateway.
    """

    def __init__(
        self,
        *,
        store: EventStore,
        settings: GatewaySettings,
        permissions: Permissions,
        streams: EventStreams,
    ) -> None:
        self._permissions = permissions
        self._store = store
        self._settings = settings
        self._streams = streams

    async def get(self, request: Request) -> Response:
        """Answers with the result of a command; raises `Problem`."""
        values = reading.single_values(request.query_params)
        aggregate_id, key = self._ids(values)
        # Of the client's own commands: another one's id becomes one that there is not.
        command_ids = self._permissions.ids(request, key)
        most = self._settings.wait_ms_max
        wait_ms = reading.integer(
            values, "wait_ms", least=1, most=most, default=self._settings.wait_ms
        )

        async def find() -> CommandResult | None:
            for command_id in command_ids:
                stream = await self._store.find_command(aggregate_id, command_id)
                if stream is not None:
                    reply = encode_reply(result_of(stream, None), value_json=stream.result)
                    return decode_reply(reply)
            return None

        if wants_events(request):

            async def tell() -> ServerSentEvent | None:
                result = await find()
                return None if result is None else self._told(result)

            return self._streams.of_one(request, tell)
        result = await self._within(find, wait_ms or most)
        if result is None:
            raise Problem(
                404,
                "no-result",
                "No result yet",
                f"command {command_ids[0]} of {aggregate_id} has no result: it waits in the queue, is parked, or"
                " was never sent; ask again, or send it again with the same Idempotency-Key",
                headers={"Retry-After": str(self._settings.retry_after_s)},
                command_id=command_ids[0],
                aggregate_id=aggregate_id,
            )
        return answer_of(result, {}, retry_after_s=self._settings.retry_after_s)

    def _ids(self, values: dict[str, str]) -> tuple[str, str]:
        errors = [
            {"field": name[:80], "sentence": "no such field"}
            for name in sorted(values.keys() - {*_IDS, "wait_ms"})
        ]
        for name in _IDS:
            try:
                check_id(f"{name} in the query", values.get(name, ""))
            except ValueError as error:
                errors.append({"field": name, "sentence": str(error)})
        if errors:
            raise invalid("the query is aggregate_id=…&command_id=…, and wait_ms=…", errors)
        return values["aggregate_id"], values["command_id"]

    async def _within(
        self, find: Callable[[], Awaitable[CommandResult | None]], wait_ms: int
    ) -> CommandResult | None:
        clock = asyncio.get_running_loop().time
        end = clock() + wait_ms / 1_000
        while True:
            result = await find()
            left = end - clock()
            if result is not None or left <= 0:
                return result
            await asyncio.sleep(min(left, self._settings.stream_look_ms / 1_000))

    def _told(self, result: CommandResult) -> ServerSentEvent:
        try:
            answer = answer_of(result, {}, retry_after_s=self._settings.retry_after_s)
        except Problem as problem:
            return ServerSentEvent("problem", msgspec.json.encode(problem.body), "result")
        return ServerSentEvent("result", bytes(answer.body), "result")


def answer_of(result: CommandResult, headers: dict[str, str], *, retry_after_s: int) -> Response:
    """Returns the response that tells a result.

    Raises:
        Problem: the command was rejected or failed.
    """
    if result.ok:
        shown = asdict(result)
        # The place differs between an answer and its duplicate.
        del shown["place"]
        body = msgspec.json.encode(shown)
        return Response(body, 200, headers, media_type="application/json")
    about: dict[str, Any] = {
        "error": result.error,
        "command_id": result.command_id,
        "aggregate_id": result.aggregate_id,
    }
    if result.status == "rejected" and result.error == AggregateNotFound.__name__:
        raise Problem(404, "no-aggregate", result.error, result.sentence, **about)
    if result.status == "rejected" and result.error == CommandNotAllowed.__name__:
        raise Problem(403, "not-allowed", result.error, result.sentence, **about)
    if result.status == "rejected":
        raise Problem(409, "rejected", result.error, result.sentence, **about)
    if result.error == "Busy":
        retry = {"Retry-After": str(retry_after_s)}
        raise Problem(503, "busy", result.error, result.sentence, headers=retry, **about)
    if result.error == "Held":
        detail = (
            "a command before this one is parked; this one is carried out in its turn when that"
            " was dealt with, and sending it again with the same Idempotency-Key is safe"
        )
        raise Problem(503, "held", result.error, detail, **about)
    # The sentence is of an unexpected error, and may reveal internals.
    log.error("command failed", sentence=result.sentence, **about)
    raise Problem(
        500,
        "failed",
        "Command failed",
        f"command {result.command_id} could not be handled and is parked",
        **about,
    )
