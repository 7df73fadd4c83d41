"""
Lets the event topic forget what is sealed in files, once every reader of the application is past it.

    sealed parts ─┐
    --keep, --before ─┴─▶ offsets ─▶ is every reader past them? ─▶ files as they were sealed? ─▶ release

Used by `headrace history trim`; asks the broker, which deletes whole segments, and the database of read
models, where projections keep their offsets.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import msgspec

from headrace._runtime.clock import Clock, SystemClock
from headrace.app import App, load_app
from headrace.errors import ProjectionError
from headrace.events.publisher import event_topic
from headrace.lineage.marks import read_kept
from headrace.projections.tables.read_models import ReadModels
from headrace.spark.archive import ExportedPart, parts_of
from headrace.spark.history.record import changed_files, read_record, sealed_through
from headrace.stores.database.schema import check
from headrace_mq.admin.client import AdminClient
from headrace_mq.errors import MessageQueueError
from headrace_mq.protocol.releases import ReleaseAnswer

__all__ = ["Trimmed", "plan_trim", "trim_history"]


class Trimmed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a topic.

    Attributes:
        topic: its name.
        released: by queue, the offset below which its messages may go.
        first: by queue, the first offset that it holds now.
        end: by queue, the offset that its next message gets.
        segments: files that went at once; others go later.
        bytes: of them.
        holding: topics because of which the oldest segment stays.
        dry_run: nothing was changed.
    """

    topic: str
    released: dict[int, int]
    first: dict[int, int]
    end: dict[int, int]
    segments: int
    bytes: int
    holding: list[str]
    dry_run: bool

    def to_json(self) -> str:
        """Returns it as one line of JSON."""
        return msgspec.json.encode(self).decode()


def plan_trim(
    wanted: Mapping[int, int] | None,
    sealed: Mapping[int, int],
    old: Mapping[int, int],
    readers: Mapping[str, Mapping[int, int]],
) -> dict[int, int]:
    """Returns the offset of each queue below which messages may go. Pure.

    Args:
        wanted: by queue, as a person said it; None: all that is sealed and old.
        sealed: by queue, where the last sealed part ends.
        old: by queue, the first offset that is not old enough.
        readers: of each reader the next offset by queue; a queue that it has not begun is left out.

    Raises:
        ProjectionError: an offset is not sealed, or a reader is not past it; names it.
    """
    before = (
        {queue: min(end, old.get(queue, 0)) for queue, end in sealed.items()}
        if wanted is None
        else dict(wanted)
    )
    for queue, offset in sorted(before.items()):
        if offset > sealed.get(queue, 0):
            raise ProjectionError(
                f"queue {queue} is sealed up to offset {sealed.get(queue, 0)}, not to {offset}; seal"
                " the rest first with `headrace history seal`"
            )
        for name, offsets in sorted(readers.items()):
            if offsets.get(queue, 0) < offset:
                raise ProjectionError(
                    f"{name} is at offset {offsets.get(queue, 0)} of queue {queue}, before {offset}:"
                    " let it read on, or keep more"
                )
    return before


async def trim_history(  # noqa: PLR0913 - what a command is asked for, all by name
    app: str,
    folder: Path,
    *,
    broker: str,
    read_models_url: str,
    keep_ms: int = 0,
    before: Mapping[int, int] | None = None,
    dry_run: bool = False,
    clock: Clock | None = None,
) -> Trimmed:
    """Releases messages of the event topic that are sealed, and that every reader is past.

    Args:
        app: the application's import path, such as `samples.bank:app`.
        folder: where the parts are.
        broker: `host:port`.
        read_models_url: where projections keep their offsets.
        keep_ms: messages that are younger stay, in milliseconds.
        before: by queue, the offset below which messages go, in place of `keep_ms`.
        dry_run: tell what would be released, and change nothing.
        clock: tells the age of messages.

    Raises:
        ProjectionError: what is to go is not sealed, a reader is not past it, the files are not what
            was sealed, or the topic is another one; nothing was released.
        SchemaOutOfDate: there are no read models, or their schema is not this version's.
    """
    application = load_app(app)
    topic = event_topic(application.name)
    parts = parts_of(folder, topic)
    last = sealed_through(folder, parts)
    if last is None:
        raise ProjectionError(
            f"no part of {folder} is sealed; run `headrace history seal {folder}`"
        )
    record = read_record(folder, last.number)
    assert record is not None, "it is sealed"
    now_ms = int((clock or SystemClock()).now().timestamp() * 1_000)
    try:
        async with AdminClient(broker) as admin:
            identity, ranges = await admin.lineage(topic)
            if record.topic_identity != identity:
                raise ProjectionError(
                    f"{topic} is another topic than the one that was sealed in {folder}; seal it into"
                    " an empty folder"
                )
            found = await admin.offsets_at([topic], now_ms - keep_ms)
            ends = {one.queue_id: one.end for one in ranges}
            old = {queue.queue_id: offset for queue, offset in found.items()} if keep_ms else ends
            readers = await _readers(application, admin, read_models_url)
            plan = plan_trim(before, last.end, old, readers)
            firsts = {one.queue_id: one.first for one in ranges}
            await asyncio.to_thread(_check_files, folder, parts[: last.number], firsts, plan)
            answer = await admin.release(topic, plan, dry_run=dry_run)
    except MessageQueueError as error:
        raise ProjectionError(f"the events of {app}: {error}") from error
    return _told(topic, answer, plan, dry_run=dry_run)


async def _readers(
    application: App, admin: AdminClient, read_models_url: str
) -> dict[str, dict[int, int]]:
    """Returns of each reader of the application its next offsets, by queue."""
    topic = event_topic(application.name)
    await check(read_models_url)
    models = ReadModels(read_models_url)
    try:
        names = list(application.projections)
        kept, generations = await models.transact(partial(read_kept, names=names, topic=topic))
    finally:
        await models.aclose()
    readers: dict[str, dict[int, int]] = {}
    for group, name in application.readers.items():
        if name in application.projections:
            offsets = kept[name, generations.get(name, 0)].offsets
            readers[f"projection {name}"] = dict(offsets)
        else:
            committed = await admin.offsets(group, [topic])
            readers[f"group {group}"] = {
                queue.queue_id: offset for queue, offset in committed.items() if offset >= 0
            }
    return readers


def _check_files(
    folder: Path, parts: list[ExportedPart], firsts: Mapping[int, int], plan: Mapping[int, int]
) -> None:
    """Looks once more at the files of what goes: they are the only copy of the messages then."""
    for part in parts:
        goes = any(
            max(start, firsts.get(queue, 0)) < min(part.end[queue], plan.get(queue, 0))
            for queue, start in part.start.items()
        )
        if goes and (changed := changed_files(folder, part)):
            raise ProjectionError(f"{changed[0]}; restore it from a copy. Nothing was released")


def _told(topic: str, answer: ReleaseAnswer, plan: Mapping[int, int], *, dry_run: bool) -> Trimmed:
    queues = {each.queue_id: each for each in answer.queues}
    released = {number: each.released for number, each in queues.items()}
    return Trimmed(
        topic=topic,
        released={**released, **plan} if dry_run else released,
        first={number: each.first for number, each in queues.items()},
        end={number: each.end for number, each in queues.items()},
        segments=answer.segments,
        bytes=answer.bytes,
        holding=answer.holding,
        dry_run=dry_run,
    )
