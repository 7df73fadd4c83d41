"""
The verbs about an application's aggregates: list, show, compare; and what the event store holds of one.

    aggregate list      which there are, a page at a time
    stream show         what commands did to one: events, messages, rejections
    aggregate show      its state at a version
    aggregate compare   what differs between two versions, in words

They only read. Used by `application`; reads the event store as `headrace aggregate` and `headrace stream show` do. Personal
values are masked; fields, states and differences are hidden from those who may not consume the application's events.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any, Final

from headrace.aggregates.changes import CHANGES_MAX, changes_between
from headrace.aggregates.directory import AggregateEntry, open_directory
from headrace.aggregates.past import Past, PastState
from headrace.app import App
from headrace.console.content import HIDDEN_WORDS, content_need
from headrace.console.problems import Mistake
from headrace.console.verbs.topic import PAGE_ROWS
from headrace.console.verbs.verb import Given, Verb, VerbField
from headrace.errors import AggregateNotFound, DamagedStream
from headrace.stores.base import EventStore, StoredStream
from headrace.stores.database.schema import check
from headrace.stores.open import open_event_store
from headrace.subjects.masked import masked
from headrace_mq.admin.client import AdminClient

__all__ = ["AggregateVerbs", "bare_fields", "stored_fields"]

# Most rows of a page.
_ROWS_MAX: Final = 500
_ID = VerbField("id")


class AggregateVerbs:
    """What can be asked of the aggregates of an application.

    Args:
        app: knows their classes.
        event_store: the database of their events.
    """

    def __init__(self, app: App, event_store: str) -> None:
        self._app = app
        self._url = event_store

    @property
    def verbs(self) -> Sequence[Verb]:
        """All of them."""
        return (
            Verb(
                "aggregate list",
                self._list,
                (
                    VerbField("type", default=""),
                    VerbField("from", default=""),
                    VerbField("after", default=""),
                    VerbField("rows", "number", PAGE_ROWS),
                ),
            ),
            Verb(
                "stream show",
                self._stream,
                (_ID, VerbField("position", "number", 0), VerbField("rows", "number", PAGE_ROWS)),
            ),
            Verb("aggregate show", self._show, (_ID, VerbField("version", "number", 0))),
            Verb(
                "aggregate compare",
                self._compare,
                (_ID, VerbField("from", "number"), VerbField("to", "number")),
            ),
        )

    async def _list(self, admin: AdminClient, given: Given) -> Any:
        await admin.status()  # refused to those who may not read the cluster
        types = sorted(self._app.definition.aggregates)
        rows = _rows(given)
        await check(self._url)
        async with open_directory(self._url) as directory:
            found = await directory.page(
                aggregate_type=given["type"],
                begin=given["from"],
                after=given["after"] or None,
                limit=rows + 1 if rows < _ROWS_MAX else rows,
            )
        shown = found[:rows]
        further = len(found) > rows or len(found) == _ROWS_MAX
        return {
            "types": types,
            "aggregates": [_entry(one) for one in shown],
            "next": shown[-1].aggregate_id if further else None,
        }

    async def _stream(self, admin: AdminClient, given: Given) -> Any:
        rows = _rows(given)
        async with self._opened(admin, given["id"]) as (store, entry, need):
            found = await store.survey(
                aggregate_id=entry.aggregate_id,
                after_position=max(0, given["position"]),
                limit=rows + 1,
            )
        shown = found[:rows]
        return {
            "aggregate": _entry(entry),
            "streams": [
                bare_fields(stored_fields(one)) if need else stored_fields(one) for one in shown
            ],
            "hidden": need,
            "next": shown[-1].position if len(found) > rows else None,
        }

    async def _show(self, admin: AdminClient, given: Given) -> Any:
        async with self._opened(admin, given["id"]) as (store, entry, need):
            version = given["version"] or entry.version
            _check_version(entry, version)
            if need:
                bare = {"version": version, "recorded_at": "", "command_id": "", "state": None}
                return {"aggregate": _entry(entry), **bare, "hidden": need}
            (found,) = await self._past(store).at(entry.aggregate_id, [version])
        return {"aggregate": _entry(entry), **_state(found), "hidden": ""}

    async def _compare(self, admin: AdminClient, given: Given) -> Any:
        first, last = sorted((given["from"], given["to"]))
        async with self._opened(admin, given["id"]) as (store, entry, need):
            for version in (first, last):
                _check_version(entry, version)
            if need:
                return self._difference(entry, (first, last), need)
            states = await self._past(store).at(entry.aggregate_id, [first, last])
            made = await store.read_stream(
                entry.aggregate_id,
                after_version=first,
                to_version=min(last, first + PAGE_ROWS),
            )
        changes = changes_between(states[0].state, states[-1].state)
        return self._difference(entry, (first, last)) | {
            "changes": [{**asdict(one), "sentence": one.sentence} for one in changes],
            "streams": [_stream_of(one) for one in made],
            "more": max(0, last - first - PAGE_ROWS),
        }

    def _difference(
        self, entry: AggregateEntry, versions: tuple[int, int], need: str = ""
    ) -> dict[str, Any]:
        """What is said of two versions besides what differs."""
        return {
            "aggregate": _entry(entry), "from": versions[0], "to": versions[1], "changes": [],
            "changes_max": CHANGES_MAX, "streams": [], "more": 0, "hidden": need,
        }  # fmt: skip

    def _past(self, store: EventStore) -> Past:
        return Past(store, self._app.definition.aggregates)

    @asynccontextmanager
    async def _opened(
        self, admin: AdminClient, aggregate_id: str
    ) -> AsyncIterator[tuple[EventStore, AggregateEntry, str]]:
        """The event store, an aggregate that is there, and what the user lacks to see its content."""
        await admin.status()  # refused to those who may not read the cluster
        need = await content_need(admin, self._app.name)
        await check(self._url)
        async with open_directory(self._url) as directory:
            entry = await directory.find(aggregate_id)
        if entry is None:
            raise AggregateNotFound(
                f"there is no aggregate {aggregate_id!r}; `aggregate list` has those that there are"
            )
        serializer = self._app.serializer_at(self._url)
        store = await open_event_store(self._url, serializer)
        try:
            yield store, entry, need
        finally:
            await store.aclose()
            serializer.close()


def _rows(given: Given) -> int:
    rows: int = given["rows"]
    return max(1, min(_ROWS_MAX, rows))


def _check_version(entry: AggregateEntry, version: int) -> None:
    if not 1 <= version <= entry.version:
        raise Mistake(
            f"{entry.aggregate_id} has the versions 1 to {entry.version:,}, not {version:,}"
        )


def _entry(entry: AggregateEntry) -> dict[str, Any]:
    return {
        "id": entry.aggregate_id,
        "type": entry.aggregate_type,
        "version": entry.version,
        "began_at": entry.began_at.isoformat(),
        "changed_at": entry.changed_at.isoformat(),
    }


def _state(found: PastState) -> dict[str, Any]:
    return {
        "version": found.version,
        "recorded_at": found.recorded_at.isoformat(),
        "command_id": found.command_id,
        "state": found.state,
    }


def stored_fields(found: StoredStream | DamagedStream) -> Mapping[str, Any]:
    """Returns what a command stored as JSON values, or why it cannot be read; personal values are masked."""
    if isinstance(found, DamagedStream):
        return {
            "position": found.position,
            "version": found.version,
            "command_id": found.command_id,
            "damaged": found.why,
        }
    return {"position": found.position, **_stream_of(found.stream)}


def _stream_of(stream: Any) -> dict[str, Any]:
    """Returns what a command did, without personal values."""
    rejection = stream.rejection
    return {
        "version": stream.version,
        "recorded_at": stream.recorded_at.isoformat(),
        "command_id": stream.command_id,
        "correlation_id": stream.correlation_id,
        "items": dict(stream.items),
        "events": [_message(each) for each in stream.events],
        "messages": [_message(each) for each in stream.messages],
        "rejection": rejection
        and {
            "command": rejection.command_name,
            "error": rejection.error,
            "sentence": rejection.sentence,
        },
        "damaged": "",
    }


def bare_fields(stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns what is stored of a stream without its content: names, versions, times and ids stay."""
    if stored.get("damaged"):
        return {**stored, "damaged": HIDDEN_WORDS}
    rejection = stored["rejection"]
    return {
        **stored,
        "items": {},
        "events": [{**one, "fields": None} for one in stored["events"]],
        "messages": [{**one, "fields": None} for one in stored["messages"]],
        "rejection": rejection and {**rejection, "sentence": HIDDEN_WORDS},
    }


def _message(message: Any) -> dict[str, Any]:
    return {"name": message.message_name, "fields": masked(message).model_dump(mode="json")}
