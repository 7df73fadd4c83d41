"""
What followed from a command: its stream in the event store, its messages, their readers, and the commands that came of it.

    stored ─▶ published ─┬▶ projections, event handlers, process managers ─▶ commanded
                         └▶ announced: application messages and their handlers

Used by `command_trace`. It changes nothing.
"""

import time
from collections.abc import Sequence
from typing import Any

from headrace.aggregates.command_directory import CommandDirectory
from headrace.app import App
from headrace.domain.stream import EventStream
from headrace.events.publisher import event_topic, message_topic
from headrace.figures.records import hidden_need, id_of
from headrace.journey.command_messages import CLOCKS_MS, FOUND_MAX
from headrace.journey.groups import ASKED_MS, add_groups
from headrace.journey.hop import Journey, page_of
from headrace.journey.readers import Reaction, ReaderHops, kept_commands
from headrace.projections.tables.read_models import ReadModels
from headrace_mq.admin.client import AdminClient
from headrace_mq.errors import TopicNotFound
from headrace_mq.message import Record

__all__ = ["Consequences", "add_kept"]


class Consequences:
    """Adds what followed from a command of an application.

    Args:
        admin: asks the broker.
        app: the application.
        models: the database of its read models.
        directory: the commands of its event store.
        journey: gets the hops.
    """

    def __init__(
        self,
        admin: AdminClient,
        app: App,
        models: ReadModels,
        directory: CommandDirectory,
        journey: Journey,
    ) -> None:
        self._admin = admin
        self._app = app
        self._models = models
        self._directory = directory
        self._journey = journey
        # All of them together are asked for groups so long.
        self._until = time.monotonic() + ASKED_MS / 1_000
        self._events, self._messages = event_topic(app.name), message_topic(app.name)

    async def add(self, stream: EventStream, handled: int) -> None:
        """Adds what became of a stream: stored, published, read, and the commands that followed.

        Args:
            stream: what the command did.
            handled: the hop that it follows.
        """
        names = ", ".join(each.message_name for each in (*stream.events, *stream.messages))
        what = f"version {stream.version}: {names}" if stream.version is not None else names
        page = page_of("/aggregate", {"id": stream.aggregate_id})
        if stream.version is not None:
            page = page_of("/state", {"id": stream.aggregate_id, "version": stream.version})
        stored = self._journey.add(
            handled, "store", "stored", what or stream.aggregate_id, page=page
        )
        if stream.unchanged:
            return
        if stream.events or stream.rejection:
            records, hidden, _ = await self._published(stream, self._events)
            record = records[0] if records else None
            after = self._add_published(stored, record, self._events, hidden)
            if record is not None:
                own = set(self._app.readers)
                await add_groups(self._admin, self._journey, record, after, own, until=self._until)
            hops = ReaderHops(
                app=self._app, models=self._models, admin=self._admin,
                journey=self._journey, stream=stream, record=record, after=after,
            )  # fmt: skip
            await self._commanded(stream, await hops.add(hidden))
        if stream.messages:
            await self._announced(stream, stored)

    async def _announced(self, stream: EventStream, stored: int) -> None:
        """Adds the application messages of a stream, and the dead letters that they became."""
        records, hidden, _ = await self._published(stream, self._messages)
        if hidden:
            self._add_published(stored, None, self._messages, hidden, step="announced")
        for one in records:
            after = self._add_published(stored, one, self._messages, step="announced")
            await add_groups(self._admin, self._journey, one, after, until=self._until)
        dead = f"{self._messages}.dead"
        letters, hidden, count = await self._published(stream, dead)
        for one in letters:
            self._journey.add(
                stored, "handler", "dead letter", id_of(one), at_ms=one.stored_at_ms, state="stopped",
                cause="dead letter", page=page_of("/message", {"id": id_of(one)}),
                detail=f"{one.headers.get('error', '')}: {one.headers.get('why', '')}",
            )  # fmt: skip
        if count:
            least = " or more" if count >= FOUND_MAX else ""
            self._journey.add(
                stored, "handler", "dead letter", dead, state="unknown", cause="not permitted",
                page=page_of("/messages", {"topic": dead, "key": stream.aggregate_id}),
                detail=f"{count:,}{least} dead letters of {stream.aggregate_id} that you may not read may be of this command:"
                f" {hidden}",
            )  # fmt: skip

    def _add_published(
        self,
        stored: int,
        record: Record | None,
        topic: str,
        hidden: str = "",
        *,
        step: str = "published",
    ) -> int:
        if record is None and hidden:
            return self._journey.add(
                stored, "topic", step, topic, state="unknown", cause="not permitted", detail=hidden
            )
        if record is None:
            return self._journey.add(
                stored, "topic", step, topic, state="waits", cause="not published",
                detail="the topic does not hold it: it is about to be published, or was trimmed",
            )  # fmt: skip
        page = page_of("/message", {"id": id_of(record)})
        return self._journey.add(
            stored, "topic", step, id_of(record), at_ms=record.stored_at_ms, page=page
        )

    async def _published(self, stream: EventStream, topic: str) -> tuple[list[Record], str, int]:
        """The messages of a stream in a topic, with copies that were published again, the oldest first.

        Then what the user lacks to see which messages are the stream's, as heads do not say it, and how many heads are there.
        """
        # Events are published soon after they were recorded.
        since = max(0, round(stream.recorded_at.timestamp() * 1_000) - CLOCKS_MS)
        try:
            records = await self._admin.find(
                topic, stream.aggregate_id, from_ms=since, limit=FOUND_MAX
            )
        except TopicNotFound:
            return [], "", 0
        needs = [need for one in records if (need := hidden_need(one))]
        own = [one for one in records if one.headers.get("command") == stream.command_id]
        return own, needs[0] if needs else "", len(needs)

    async def _commanded(self, stream: EventStream, reactions: Sequence[Reaction]) -> None:
        """Adds the commands that process managers sent because of a stream."""
        by_id = {each: one for one in reactions for each in one.command_ids(stream)}
        place = await self._directory.at(stream.aggregate_id, stream.command_id)
        if not by_id or place is None:
            return
        done = await self._directory.soon_after(place.position, list(by_id))
        async with self._models.snapshot() as connection:
            kept = await connection.run_sync(kept_commands, self._app, list(by_id))
        for row in kept.values():
            # A row that was sent stays until its instance ends, so what it did may stand far behind.
            if row.sent and row.command_id not in done:
                late = await self._directory.at(row.aggregate_id, row.command_id)
                if late is not None:
                    done[row.command_id] = late
        for command_id, reaction in by_id.items():
            if command_id in done:
                one = done[command_id]
                row = kept.get(command_id)
                name = f"{row.name} to {one.aggregate_id}" if row else f"to {one.aggregate_id}"
                page = page_of("/trace", {"command": command_id, "aggregate": one.aggregate_id})
                self._journey.add(reaction.hop, "sender", "commanded", name, page=page)
            elif command_id in kept:
                add_kept(self._journey, reaction.hop, kept[command_id])


def add_kept(journey: Journey, after: int | None, row: Any) -> None:
    """Adds a command that a process keeps: it is not sent, not due, or was refused.

    Args:
        journey: gets the hop.
        after: the hop that it follows; None: it begins the journey.
        row: of `kept_commands`.
    """
    page = page_of("/process", {"name": row.process, "key": row.instance})
    more: dict[str, Any] = {
        "state": "waits",
        "cause": "waits its turn",
        "detail": "it was sent, and has done nothing yet that is stored; follow it",
    }
    if row.sent and row.due is None and row.refused is None:
        page = page_of("/trace", {"command": row.command_id, "aggregate": row.aggregate_id})
    if row.refused is not None:
        more = {"state": "stopped", "cause": "not sent", "detail": row.refused}
    elif row.due is not None:
        when = f"it is due {row.due:%Y-%m-%d %H:%M:%S} UTC"
        more = {"state": "waits", "cause": "not due", "detail": when}
    elif not row.sent:
        more = {"state": "waits", "cause": "not sent", "detail": "the process sends it soon"}
    name = f"{row.name} to {row.aggregate_id}"
    journey.add(after, "sender", "commanded", name, page=page, **more)
