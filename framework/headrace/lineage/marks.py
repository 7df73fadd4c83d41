"""
Stores for each reader of events which topic and which event store it belongs to.

A mark is written some time after the reader has seen a message, never before. It is no offset, but proof
that the topic had the message, and the store its stream. Used by `check`; reads and writes the tables.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from sqlalchemy import Connection, delete, select, update

from headrace.errors import LineageError
from headrace.lineage.verdict import Kept, Mark
from headrace.projections.tables.statements import upsert
from headrace.stores.database.tables import projection_offsets, projections, reader_marks

__all__ = [
    "WHOLE",
    "Reader",
    "forget",
    "move_back",
    "move_marks",
    "note_epochs",
    "read_epochs",
    "read_kept",
    "reset_readers",
    "settle_readers",
    "write_marks",
]

# The queue number of the row that says which topic and store a reader belongs to.
WHOLE: Final = -1

# Name and generation; the generation is 0 for readers without generations.
Reader = tuple[str, int]


def read_kept(
    connection: Connection, names: Collection[str], topic: str
) -> tuple[dict[Reader, Kept], dict[str, int]]:
    """Returns what is stored about readers, and the live generations of the projections among them."""
    live = projections.c
    found = connection.execute(select(live.name, live.generation).where(live.name.in_(names)))
    generations: dict[str, int] = {row.name: row.generation for row in found}
    readers = [(name, generations.get(name, 0)) for name in names]
    marks: dict[Reader, dict[int, Mark]] = {reader: {} for reader in readers}
    whole: dict[Reader, tuple[str, str]] = {}
    columns = reader_marks.c
    for row in connection.execute(select(reader_marks).where(columns.name.in_(names))):
        reader = (row.name, row.generation)
        if reader not in marks:
            continue
        if row.queue_id == WHOLE:
            whole[reader] = (row.topic_identity, row.store_identity)
        else:
            stream = (row.aggregate_id, row.command_id) if row.command_id else None
            marks[reader][row.queue_id] = Mark(
                next_offset=row.next_offset,
                message_id=row.message_id,
                stream=stream,
                epoch=row.epoch,
            )
    offsets: dict[Reader, dict[int, int]] = {reader: {} for reader in readers}
    o = projection_offsets.c
    for row in connection.execute(
        select(projection_offsets).where(o.name.in_(names), o.topic == topic)
    ):
        if (row.name, row.generation) in offsets:
            offsets[row.name, row.generation][row.queue_id] = row.next_offset
    kept = {}
    for reader in readers:
        topic_identity, store_identity = whole.get(reader, (None, None))
        kept[reader] = Kept(
            topic=topic_identity,
            store=store_identity,
            marks=marks[reader],
            offsets=offsets[reader],
        )
    return kept, generations


def write_marks(
    connection: Connection,
    readers: Mapping[Reader, Mapping[int, Mark]],
    *,
    topic: str,
    store: str,
) -> None:
    """Stores the marks of readers, and the topic and store that they belong to.

    Args:
        connection: in a transaction that can write.
        readers: the marks of each reader by queue.
        topic: identity of the event topic.
        store: identity of the event store.
    """
    whole = Mark(next_offset=0, message_id="")
    rows = []
    for (name, generation), marks in sorted(readers.items()):
        for number, mark in sorted({WHOLE: whole, **marks}.items()):
            aggregate_id, command_id = mark.stream or ("", "")
            rows.append(
                {
                    "name": name,
                    "generation": generation,
                    "queue_id": number,
                    "topic_identity": topic,
                    "store_identity": store,
                    "next_offset": mark.next_offset,
                    "message_id": mark.message_id,
                    "aggregate_id": aggregate_id,
                    "command_id": command_id,
                    "epoch": mark.epoch,
                }
            )
    upsert(connection, reader_marks, rows)


def reset_readers(connection: Connection, readers: Sequence[Reader]) -> None:
    """Resets readers to the topic's start; their versions stay, so no event is handled twice.

    Of a projection all generations: code of other versions folds the same topic into them.
    """
    for name, _ in readers:
        for table in (projection_offsets, reader_marks):
            connection.execute(delete(table).where(table.c.name == name))


def move_back(
    connection: Connection,
    topic: str,
    readers: Mapping[Reader, Mapping[int, int]],
    *,
    all_generations: bool = True,
) -> None:
    """Moves the offsets of readers back to where messages of a topic have changed; versions stay, as of `reset_readers`.

    Args:
        connection: in a transaction that can write.
        topic: its name.
        readers: for each the lowest changed offset by queue; marks above them are deleted.
        all_generations: of a projection; False: only the reader's own.
    """
    marks, offsets = reader_marks.c, projection_offsets.c
    for (name, generation), changed in sorted(readers.items()):
        for number, lowest in sorted(changed.items()):
            theirs = [offsets.name == name, offsets.topic == topic, offsets.queue_id == number]
            mine = [marks.name == name, marks.queue_id == number]
            if not all_generations:
                theirs.append(offsets.generation == generation)
                mine.append(marks.generation == generation)
            above = offsets.next_offset > lowest
            connection.execute(
                update(projection_offsets).where(*theirs, above).values(next_offset=lowest)
            )
            connection.execute(delete(reader_marks).where(*mine, marks.next_offset > lowest))


def settle_readers(
    connection: Connection,
    *,
    reset: Sequence[Reader],
    back: Mapping[Reader, Mapping[int, int]],
    fresh: Mapping[Reader, Mapping[int, Mark]],
    name: str,
    topic: str,
    store: str,
) -> None:
    """Does what a comparison has found: resets readers, moves readers back, and stores marks.

    Args:
        connection: in a transaction that can write.
        reset: begin at the topic's start; see `reset_readers`.
        back: go back; see `move_back`.
        fresh: the marks to store.
        name: of the topic.
        topic: its identity.
        store: identity of the event store.
    """
    reset_readers(connection, reset)
    move_back(connection, name, back)
    write_marks(connection, fresh, topic=topic, store=store)


def read_epochs(connection: Connection, reader: Reader) -> dict[int, int]:
    """Returns by queue the epoch of the topic's brokers that is noted of a reader; none where it is not known."""
    columns, (name, generation) = reader_marks.c, reader
    mine = columns.name == name, columns.generation == generation, columns.queue_id != WHOLE
    found = connection.execute(select(columns.queue_id, columns.epoch).where(*mine))
    return {row.queue_id: row.epoch for row in found if row.epoch}


def note_epochs(connection: Connection, reader: Reader, epochs: Mapping[int, int]) -> None:
    """Notes by queue the epoch of the topic's brokers in which all that a reader has read is right.

    Which topic and event store it belongs to is not noted by this.
    """
    columns, (name, generation) = reader_marks.c, reader
    for number, epoch in sorted(epochs.items()):
        mine = columns.name == name, columns.generation == generation, columns.queue_id == number
        if connection.execute(update(reader_marks).where(*mine).values(epoch=epoch)).rowcount:
            continue
        bare = {"topic_identity": "", "store_identity": "", "next_offset": 0, "message_id": ""}
        row = {"name": name, "generation": generation, "queue_id": number, "epoch": epoch}
        upsert(connection, reader_marks, [bare | row | {"aggregate_id": "", "command_id": ""}])


def move_marks(
    connection: Connection, topic: str, *, source: str, target: str, shifts: Mapping[int, int]
) -> list[str]:
    """Lets readers of a topic go on at a copy of it; of all their generations.

    Args:
        connection: in a transaction that can write.
        topic: its name.
        source: identity of the topic that they belong to now; readers of another one stay as they are.
        target: identity of the copy.
        shifts: per queue what to subtract from an offset.

    Returns:
        The names of those that were moved; none, if this was done before.

    Raises:
        LineageError: a reader has not read messages that the copy lacks; nothing may be committed then.
    """
    marks, offsets = reader_marks.c, projection_offsets.c
    found = select(marks.name).where(marks.topic_identity == source).distinct()
    names = sorted(connection.execute(found).scalars())
    theirs = offsets.name.in_(names), offsets.topic == topic
    for number, shift in sorted(shifts.items()):
        behind = select(offsets.name).where(
            *theirs, offsets.queue_id == number, offsets.next_offset < shift
        )
        for name in connection.execute(behind.limit(1)).scalars():
            raise LineageError(
                f"{name} has not read messages of queue {number} that {topic} has let go; rebuild it"
                " before the topic is copied"
            )
        connection.execute(
            update(projection_offsets)
            .where(*theirs, offsets.queue_id == number)
            .values(next_offset=offsets.next_offset - shift)
        )
        # A row with offset 0 is no place: it says how far the topic's own state is.
        mine = marks.topic_identity == source, marks.queue_id == number, marks.next_offset > 0
        # A message that the copy lacks proves nothing.
        connection.execute(delete(reader_marks).where(*mine, marks.next_offset <= shift))
        connection.execute(
            update(reader_marks).where(*mine).values(next_offset=marks.next_offset - shift)
        )
    connection.execute(
        # The brokers of the copy count epochs of their own.
        update(reader_marks)
        .where(marks.topic_identity == source)
        .values(topic_identity=target, epoch=0)
    )
    return names


def forget(connection: Connection, names: Collection[str]) -> None:
    """Deletes the marks of readers, of every generation."""
    connection.execute(delete(reader_marks).where(reader_marks.c.name.in_(names)))
