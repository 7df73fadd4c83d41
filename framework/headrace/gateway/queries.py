"""
`GET /projections/{name}` and `GET /projections/{name}/{key}`: rows of read models.

Each answer has an `ETag` made of its bytes. A request that names it in `If-None-Match` gets 304 and no body.
One that accepts `text/event-stream` gets the same again at each change.

The endpoints behind these routes. They only read.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from hashlib import blake2b
from typing import Any, Final

import msgspec
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from headrace.app import App, RunningApp
from headrace.domain.identity import check_id
from headrace.errors import ProjectionError, ProjectionNotFound
from headrace.gateway import request as reading
from headrace.gateway.access.permissions import Permissions
from headrace.gateway.pages import CONTROLS, Pages
from headrace.gateway.problems import Problem, invalid, named_errors
from headrace.gateway.settings import GatewaySettings
from headrace.gateway.sse.stream import EventStreams, ServerSentEvent, wants_events
from headrace.projections.definition.projection import Projection

__all__ = ["Queries"]

_WAITING: Final = frozenset({"seen", "wait_ms"})
# No aggregate has more, and every database has room for it.
_VERSION_MAX: Final = 10**18 - 1
# Of an ETag: two different answers never share one by chance.
_TAG_BYTES: Final = 16


class Queries:
    """The endpoints of all projections.

    Args:
        app: whose projections.
        running: the same application at work.
        settings: bounds and waits.
        permissions: what clients may read.
        streams: of the gateway.
    """

    def __init__(
        self,
        *,
        app: App,
        running: RunningApp,
        settings: GatewaySettings,
        permissions: Permissions,
        streams: EventStreams,
    ) -> None:
        self._streams = streams
        self._permissions = permissions
        self._running = running
        self._settings = settings
        self._pages: dict[str, Pages[Any]] = {
            name: Pages(projection, running.read_models)
            for name, projection in app.projections.items()
        }
        self._app = app

    async def one(self, request: Request) -> Response:
        """Answers with the row of a key; raises `Problem`."""
        projection = self._projection(request)
        values = reading.single_values(request.query_params)
        _refuse_unknown(values, _WAITING)
        await self._wait(projection, values)
        key = request.path_params["key"]

        async def read() -> bytes | None:
            row = await self._find(projection, key)
            return None if row is None else projection.shape.to_json(row)

        if wants_events(request):
            return self._streams.of_rows(request, projection.name, partial(_told, "row", read))
        body = await read()
        if body is None:
            raise Problem(
                404, "no-row", "No such row", f"{projection.name} has no row {key[:255]!r}"
            )
        return _answer(request, body)

    async def many(self, request: Request) -> Response:
        """Answers with a page of rows; raises `Problem`."""
        projection = self._projection(request)
        pages = self._pages[projection.name]
        values = reading.single_values(request.query_params)
        _refuse_unknown(
            {name: text for name, text in values.items() if pages.field_of(name) is None},
            CONTROLS | pages.fields,
        )
        most = self._settings.page_rows_max
        limit = reading.integer(
            values, "limit", least=1, most=most, default=self._settings.page_rows
        )
        after = values.get("after")
        if after is not None and "\x00" in after:
            raise invalid("after is a key", [{"field": "after", "sentence": "has a NUL"}])
        wished = {name: text for name, text in values.items() if name not in CONTROLS}
        conditions = _conditions(pages, wished)
        await self._wait(projection, values)

        async def read() -> bytes:
            page = await pages.read(
                conditions, sort=values.get("sort"), after=after, limit=limit or most
            )
            rows = b",".join(map(projection.shape.to_json, page.rows))
            return b'{"rows":[%b],"after":%b}' % (rows, msgspec.json.encode(page.after))

        try:
            body = await read()
        except ValueError as error:
            raise invalid(str(error), [{"field": "", "sentence": str(error)}]) from error
        if wants_events(request):
            return self._streams.of_rows(request, projection.name, partial(_told, "page", read))
        return _answer(request, body)

    async def _find(self, projection: Projection[Any], text: str) -> Any:
        """Returns the row of a key; None also of what is no key."""
        form = projection.key_form
        if "\x00" in text:
            return None
        try:
            key = form.value(form.parse(text))
        except ValueError:
            return None
        return await self._running.read(projection).get(key)

    def _projection(self, request: Request) -> Projection[Any]:
        try:
            projection = self._app.projection(request.path_params["name"][:100])
        except ProjectionNotFound as error:
            raise Problem(404, "unknown-projection", "Unknown projection", str(error)) from error
        self._permissions.require_read(request, projection.name)
        return projection

    async def _wait(self, projection: Projection[Any], values: dict[str, str]) -> None:
        """Waits until the rows show a change that the client made: `seen=AGGREGATE_ID@VERSION`."""
        most = self._settings.wait_ms_max
        wait_ms = reading.integer(
            values, "wait_ms", least=1, most=most, default=self._settings.wait_ms
        )
        seen = values.get("seen")
        if seen is None:
            return
        aggregate_id, _, text = seen.rpartition("@")
        try:
            check_id("an aggregate id", aggregate_id)
        except ValueError as error:
            sentence = f"write AGGREGATE_ID@VERSION: {error}"
            raise invalid(sentence, [{"field": "seen", "sentence": sentence}]) from error
        version = reading.integer({"seen": text}, "seen", least=1, most=_VERSION_MAX, default=None)
        try:
            await self._running.read_models.wait_for_version(
                projection, aggregate_id, version or 1, timeout_ms=wait_ms or most
            )
        except ProjectionError as error:
            raise Problem(
                504,
                "not-seen",
                "Not seen in time",
                f"{error}; ask again, it goes on meanwhile",
                headers={"Retry-After": str(self._settings.retry_after_s)},
            ) from error


def _refuse_unknown(values: dict[str, str], known: frozenset[str]) -> None:
    unknown = sorted(values.keys() - known)
    if unknown:
        names = ", ".join(sorted(known))
        raise invalid(
            f"the query knows: {names}",
            [{"field": name[:80], "sentence": "no such field"} for name in unknown],
        )


def _conditions(pages: Pages[Any], wished: dict[str, str]) -> dict[str, Any]:
    conditions: dict[str, Any] = {}
    errors: list[dict[str, str]] = []
    for name, text in wished.items():
        try:
            condition, value = pages.condition(name, text)
            conditions[condition] = value
        except ValidationError as error:
            errors += [{**one, "field": name} for one in named_errors(error)]
        except ValueError as error:
            errors.append({"field": name, "sentence": str(error)})
    if errors:
        raise invalid("no row can have these values", errors)
    return conditions


async def _told(event: str, read: Callable[[], Awaitable[bytes | None]]) -> ServerSentEvent:
    body = await read()
    return (
        ServerSentEvent("gone", b"null", "gone")
        if body is None
        else ServerSentEvent(event, body, _tag(body))
    )


def _tag(body: bytes) -> str:
    return f'"{blake2b(body, digest_size=_TAG_BYTES).hexdigest()}"'


def _answer(request: Request, body: bytes) -> Response:
    tag = _tag(body)
    # A browser may keep it, and asks each time whether it is still the same.
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if reading.is_known(request.headers, tag):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)
