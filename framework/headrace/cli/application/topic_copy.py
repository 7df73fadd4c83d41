"""`headrace topic copy`: moves an application's topics to another queue, and its readers with them."""

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from headrace.cli.options import AppPath, ReadModelsUrl, SourceAddress, TargetAddress
from headrace.cli.queue.administration import AsJson
from headrace.cli.queue.topic import commands
from headrace.cli.tables import print_table

if TYPE_CHECKING:  # loaded by the functions: the help text must not wait for the queue
    from headrace.app import App
    from headrace.transports.topic_copy import QueueCopy
    from headrace.transports.topic_reader import TopicReader
    from headrace.transports.topic_writer import TopicWriter

__all__ = ["commands"]

# Messages between two lines about how far it is.
_TOLD_EVERY = 100_000


@commands.command()
def copy(
    source: SourceAddress,
    target: TargetAddress,
    *,
    app_path: AppPath,
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
    as_json: AsJson = False,
) -> None:
    """Copy the topics of an application, compare both sides, and move its readers there.

    Stop what sends commands, and the services, first. Run it again if it ends half way: it goes on. Then
    start the services with the other address. The source keeps its messages.
    """
    import msgspec

    from headrace.app import load_app

    if source == target:
        raise typer.BadParameter("use two addresses", param_hint="TARGET")
    application = load_app(app_path)
    moved = _Move(application, source, target, read_models).run()
    if as_json:
        typer.echo(msgspec.json.encode(moved).decode())
        return
    print_table(
        ("topic", "queue", "messages", "offsets less", "SHA-256"),
        [
            (each.topic, each.queue, each.messages, each.shift, each.digest[:16])
            for each in moved.queues
        ],
    )
    typer.echo(f"{moved.copied:,} messages copied; both sides are equal")
    typer.echo(f"readers moved: {', '.join([*moved.groups, *moved.readers]) or 'none'}")


@dataclass(frozen=True, slots=True)
class _Moved:
    """What was done: messages copied now, all queues, and the groups and readers that were moved."""

    copied: int
    queues: "list[QueueCopy]"
    groups: list[str]
    readers: list[str]


class _Move:
    """Both ends of a move; each is used by this thread alone."""

    def __init__(self, app: "App", source: str, target: str, read_models: str) -> None:
        from headrace.domain.topics import CommandTopics, command_topic
        from headrace.events.publisher import event_topic, message_topic

        self._addresses = source, target
        self._read_models = read_models
        self._events, messages = event_topic(app.name), message_topic(app.name)
        commands = CommandTopics(app.name, app.command_types).chosen()
        # Whether each topic is kept for ever.
        self._topics = {
            **dict.fromkeys(commands, False),
            self._events: True,
            messages: False,
            f"{messages}.dead": True,
        }
        self._groups = {command_topic(app.name): commands, messages: [messages]}
        for group, name in app.readers.items():
            if name not in app.projections:
                self._groups[group] = [self._events]

    def run(self) -> _Moved:
        from headrace.transports.topic_copy import CopyRefused, compare_topics, copy_topic
        from headrace.transports.topic_reader import open_topic_reader
        from headrace.transports.topic_writer import open_topic_writer

        source, target = self._addresses
        with ExitStack() as opened:
            reader = opened.enter_context(open_topic_reader(source))
            there = opened.enter_context(open_topic_reader(target))
            old = opened.enter_context(open_topic_writer(source))
            writer = opened.enter_context(open_topic_writer(target))
            self._find_topics(reader)
            before = self._state(reader, old)
            told = _Progress()
            copied = sum(
                copy_topic(reader, there, writer, topic, forever=forever, told=told.add)
                for topic, forever in self._topics.items()
            )
            queues = [
                each for topic in self._topics for each in compare_topics(reader, there, topic)
            ]
            if self._state(reader, old) != before:
                raise CopyRefused(
                    "messages came or were handled while they were copied; stop the services and what"
                    " sends commands, and copy again"
                )
            groups = self._move_groups(old, writer, queues)
        readers = asyncio.run(self._move_readers(queues))
        return _Moved(copied, queues, groups, readers)

    def _find_topics(self, reader: "TopicReader") -> None:
        """Leaves out topics that the application has not needed yet."""
        from headrace_mq.errors import TopicNotFound

        for topic in list(self._topics):
            try:
                reader.ranges([topic])
            except TopicNotFound:
                if topic == self._events:
                    raise
                del self._topics[topic]
        for group, topics in self._groups.items():
            self._groups[group] = [each for each in topics if each in self._topics]

    def _state(self, reader: "TopicReader", old: "TopicWriter") -> Any:
        """What changes where something still runs."""
        ends = {(each.topic, each.queue_id): each.end for each in reader.ranges([*self._topics])}
        groups = {
            (group, topic): dict(old.committed(group, topic))
            for group, topics in self._groups.items()
            for topic in topics
        }
        return ends, groups

    def _move_groups(
        self, old: "TopicWriter", writer: "TopicWriter", queues: "list[QueueCopy]"
    ) -> list[str]:
        copies: dict[tuple[str, int], QueueCopy] = {
            (each.topic, each.queue): each for each in queues
        }
        moved = []
        for group, topics in self._groups.items():
            for topic in topics:
                offsets = {
                    number: max(copies[topic, number].first, offset - copies[topic, number].shift)
                    for number, offset in old.committed(group, topic).items()
                }
                if offsets:
                    writer.commit(group, topic, offsets)
                    moved.append(group)
        return sorted(set(moved))

    async def _move_readers(self, queues: "list[QueueCopy]") -> list[str]:
        from headrace.lineage.marks import move_marks
        from headrace.projections.tables.read_models import ReadModels
        from headrace.stores.database.schema import check
        from headrace.transports.topic_reader import topic_identity

        source, target = [await topic_identity(each, self._events) for each in self._addresses]
        mine = {each.queue: each.shift for each in queues if each.topic == self._events}
        await check(self._read_models)
        models = ReadModels(self._read_models)
        try:
            return await models.transact(
                partial(move_marks, topic=self._events, source=source, target=target, shifts=mine)
            )
        finally:
            await models.aclose()


class _Progress:
    """Says now and then how many messages were copied."""

    def __init__(self) -> None:
        self._count = self._told = 0

    def add(self, count: int) -> None:
        self._count += count
        if self._count - self._told >= _TOLD_EVERY:
            self._told = self._count
            typer.echo(f"{self._count:,} messages copied", err=True)
