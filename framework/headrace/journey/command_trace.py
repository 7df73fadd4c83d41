"""
Follows one command of an application, from its sender to the last reader of what it did.

    a message id, a command id, or an aggregate and a version ─▶ the command ─▶ its hops, as far as they are known

The event store says what the command did, or a letter why it did nothing; the broker has its message as long as its topic keeps
it. What followed from it is the part of `consequences`. Used by `headrace message trace` and by the console.
"""

from headrace.aggregates.command_directory import CommandDirectory
from headrace.app import App
from headrace.bus import REPLY_TO
from headrace.domain.topics import command_topic
from headrace.events.publisher import event_topic, message_topic
from headrace.figures.records import id_of
from headrace.journey.command_messages import head_of
from headrace.journey.command_search import CommandSearch, FoundCommand, open_commands
from headrace.journey.consequences import Consequences, add_kept
from headrace.journey.groups import add_group, add_message
from headrace.journey.hop import Journey, page_of
from headrace.journey.readers import kept_commands
from headrace.journey.told_times import add_delivered, told_times
from headrace.journey.trace import Trace, TraceTarget, first_message, nothing_found, trace_message
from headrace.parked import COMMANDS, Databases
from headrace.settings import Settings
from headrace.stores.base import CommandLetter, LetterState
from headrace_mq.admin.client import AdminClient
from headrace_mq.message import Record

__all__ = ["trace_application"]


async def trace_application(
    admin: AdminClient, app: App, settings: Settings, wanted: TraceTarget
) -> Trace:
    """Follows a command of an application, or a message that is none of its commands.

    Args:
        admin: asks the broker.
        app: the application.
        settings: name its databases, whose schemas are up to date.
        wanted: what is to be followed.

    Raises:
        ValueError: the message id is none.
        QueueNotFound: there is no such topic or queue.
        sqlalchemy.exc.SQLAlchemyError, OSError: a database is away.
    """
    async with open_commands(app, settings) as (databases, directory):
        return await _CommandTrace(admin, app, databases, directory).wanted(wanted)


class _CommandTrace:
    """Follows one command.

    Args:
        admin: asks the broker.
        app: the application.
        databases: its databases.
        directory: finds commands by their id.
    """

    def __init__(
        self, admin: AdminClient, app: App, databases: Databases, directory: CommandDirectory
    ) -> None:
        self._admin = admin
        self._app = app
        self._databases = databases
        self._directory = directory
        self._search = CommandSearch(admin, app, databases, directory)
        self._topics = self._search.topics
        self._events, self._messages = event_topic(app.name), message_topic(app.name)
        self._journey = Journey()

    async def wanted(self, wanted: TraceTarget) -> Trace:
        """Follows what is wanted."""
        aggregate_id, command_id = wanted.aggregate_id, wanted.command_id
        if wanted.message_id:
            record = await first_message(self._admin, wanted.message_id)
            named = None if record is None else self._command_of(record)
            if named is None:
                return await trace_message(self._admin, wanted.message_id)
            aggregate_id, command_id = named
        elif wanted.version:
            streams = await self._databases.store.read_stream(
                aggregate_id, after_version=wanted.version - 1, to_version=wanted.version
            )
            if not streams:
                return nothing_found(f"{aggregate_id} has no version {wanted.version}")
            command_id = streams[0].command_id
        elif not aggregate_id:
            aggregate_id = await self._search.aggregate_of(command_id)
        return await self._follow(aggregate_id, command_id)

    def _command_of(self, record: Record) -> tuple[str, str] | None:
        """Aggregate and id of the command that a message of the application belongs to."""
        topic = record.queue.topic
        if topic in self._topics:
            head = head_of(record)
            return None if head is None else (record.key, head.command_id)
        if topic in {self._events, self._messages, f"{self._messages}.dead"}:
            command_id = record.headers.get("command", "")
            return (record.key, command_id) if command_id else None
        return None

    async def _follow(self, aggregate_id: str, command_id: str) -> Trace:
        found = await self._search.look(aggregate_id, command_id)
        if not found.known:
            if await self._unsent(found):
                return self._trace(found)
            return nothing_found(
                f"nothing is known of command {command_id}: it was not sent, or its message is in no topic any more and"
                " it stored nothing, or you may not see it; if you know its aggregate, name that, too"
            )
        queued = await self._sent(found)
        handled = await self._handled(found, queued)
        if found.stream is not None and handled is not None:
            consequences = Consequences(
                self._admin, self._app, self._databases.read_models, self._directory, self._journey
            )
            await consequences.add(found.stream, handled)
        return self._trace(found)

    def _trace(self, found: FoundCommand) -> Trace:
        first = found.messages[0] if found.messages else None
        chain = found.chain if found.chain != found.command_id else ""
        return Trace(
            journey=self._journey,
            message_id="" if first is None else id_of(first),
            record=first,
            command={
                "id": found.command_id,
                "name": found.name,
                "aggregate_id": found.aggregate_id,
                "caused_by": chain,
            },
        )

    async def _unsent(self, found: FoundCommand) -> bool:
        """Adds a command that a process keeps and has not sent, or that the queue keeps until it is due."""
        async with self._databases.read_models.snapshot() as connection:
            kept = await connection.run_sync(kept_commands, self._app, [found.command_id])
        row = kept.get(found.command_id)
        if row is None:
            return False
        found.name, found.aggregate_id = row.name, row.aggregate_id
        add_kept(self._journey, None, row)
        return True

    async def _sent(self, found: FoundCommand) -> int:
        if found.messages:
            times = len(found.messages)
            detail = "" if times == 1 else f"it was sent {times} times, and has an effect once"
            return await add_message(self._admin, self._journey, found.messages[0], detail)
        detail = f"its message is not in {', '.join(self._topics)} any more, or you may not see it"
        return self._journey.add(
            None,
            "sender",
            "sent",
            found.command_id,
            state="unknown",
            cause="not kept",
            detail=detail,
        )

    async def _handled(self, found: FoundCommand, queued: int) -> int | None:
        """Adds what the command service did with it; returns the hop behind which the stream is, if there is one."""
        group = command_topic(self._app.name)
        page = page_of("/group", {"group": group})
        if found.letter is not None or found.damage or found.stream is not None:
            # Otherwise what its consumers told follows with where it stands.
            times = await told_times(self._admin, found.messages[0] if found.messages else None)
            queued = add_delivered(self._journey, queued, "handler", group, times)
        if found.letter is not None:
            self._parked(found.letter, queued)
            return None
        if found.damage:
            self._journey.add(
                queued, "store", "damaged", found.aggregate_id, state="stopped", detail=found.damage
            )
            return None
        if found.stream is None:
            await add_group(self._admin, self._journey, found.messages[-1], queued, group)
            return None
        stream, handler = found.stream, self._handler(found.name)
        at_ms = round(stream.recorded_at.timestamp() * 1_000)
        step = "rejected" if stream.rejection else "unchanged" if stream.unchanged else "handled"
        detail = (
            f"{stream.rejection.error}: {stream.rejection.sentence}" if stream.rejection else ""
        )
        handled = self._journey.add(
            queued, "handler", step, handler or group, at_ms=at_ms, detail=detail, page=page
        )
        if found.messages and REPLY_TO in found.messages[0].headers:
            self._journey.add(
                handled, "sender", "answered", found.messages[0].headers[REPLY_TO], state="unknown",
                detail="a reply goes to the caller's connection once, and nothing keeps it",
            )  # fmt: skip
        return handled

    def _parked(self, letter: CommandLetter, queued: int) -> None:
        held = letter.state is LetterState.HELD
        why = (
            "an earlier command of its aggregate is parked"
            if held
            else f"{letter.error}: {letter.sentence}"
        )
        self._journey.add(
            queued, "handler", "parked", letter.name, at_ms=round(letter.parked_at.timestamp() * 1_000),
            state="stopped", cause="held" if held else "parked",
            detail=f"{why}; retry {'that one' if held else 'or skip it'}",
            page=page_of("/parked", {"processor": COMMANDS}),
        )  # fmt: skip

    def _handler(self, name: str) -> str:
        """What handles a command, by its registered name; empty: nothing does."""
        for kind, handler in self._app.definition.commands.items():
            if kind.message_name == name:
                return handler
        return ""
