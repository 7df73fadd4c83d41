"""
What stands in the journal of transactions, queue 0 of `%TRANSACTION%`: records to values and back. PURE.

    client   a bundle of prepared transactions, as `protocol.transactions` says  -> Prepared
    broker   decisions, and the batches that follow from them                    -> Decided
             the decisions before are carried out                                -> Done
             who was asked for an answer, and how often                          -> Checked

A record of the broker has KIND_HEADER; a client's has no headers.

Used by `coordinator`, which reads and appends the records. `undecided` knows what they mean together.
"""

from collections.abc import Collection

import msgspec

from headrace_mq.access.audit import AUDIT_TOPIC
from headrace_mq.broker.journal.batches import own_columns
from headrace_mq.errors import (
    CorruptBatch,
    DataCorrupt,
    InvalidArgument,
    InvalidBatch,
    MalformedRequest,
    UndecodableBatch,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import BatchHeader, Columns, check_whole, decode_columns
from headrace_mq.protocol.bodies import decode
from headrace_mq.protocol.scheduled import SCHEDULE_TOPIC
from headrace_mq.protocol.transactions import (
    BUNDLE_TRANSACTIONS_MAX,
    NAME_BYTES_MAX,
    NAME_SURELY_SHORT,
    RESERVED_PREFIX,
    TRANSACTION_TOPIC,
    Bundle,
    BundlePart,
    read_head,
)

__all__ = [
    "KIND_HEADER",
    "BundleDecision",
    "Checked",
    "Decided",
    "DecidedPart",
    "Done",
    "Event",
    "Prepared",
    "check_bundle",
    "own_record",
    "read_event",
]

KIND_HEADER = RESERVED_PREFIX + "kind"


class Prepared(msgspec.Struct, frozen=True):
    """A bundle was stored; its messages stand at `number` in the journal."""

    number: int
    group: str
    client_id: str
    count: int
    begun_at_ms: int


class BundleDecision(msgspec.Struct, frozen=True, array_like=True):
    """What was decided on transactions of one bundle, by their places in it."""

    number: int
    commit: list[int]
    roll_back: list[int]
    keep_aside: list[int]


class DecidedPart(msgspec.Struct, frozen=True, array_like=True):
    """One batch that follows from decisions: where it goes, under which sequence, and from what.

    `aside` says that it holds what is kept aside instead of what is committed. Where the queue that
    its records were prepared for takes none any more, they were divided `among` others, and these are
    this queue's share.
    """

    topic: str
    queue_id: int
    first_sequence: int
    number: int
    part: int
    aside: bool = False
    among: list[int] = []


class Decided(msgspec.Struct, frozen=True, array_like=True, tag="decided"):
    """Decisions, and the batches about to be appended, by the producer epoch of one broker start."""

    epoch: int
    decisions: list[BundleDecision]
    parts: list[DecidedPart]


class Done(msgspec.Struct, frozen=True, array_like=True, tag="done"):
    """The decisions before this are carried out, durably."""


class Checked(msgspec.Struct, frozen=True, array_like=True, tag="checked"):
    """A bundle was checked so often, and is to be checked again at a time in ms since 1970."""

    number: int
    checks: int
    check_at_ms: int


Event = Prepared | Decided | Done | Checked
_OwnEvent = Decided | Done | Checked

_decode = msgspec.msgpack.Decoder(_OwnEvent).decode


def own_record(*events: Decided | Done | Checked) -> Columns:
    """Returns the columns of a batch that holds the broker's own records."""
    return own_columns(KIND_HEADER, events)


def read_event(header: BatchHeader, columns: Columns, index: int) -> Event:
    """Reads the record at `index` of a batch. Raises DataCorrupt where it means nothing."""
    number = header.base_offset + index
    try:
        if columns.headers and columns.headers[index].get(KIND_HEADER):
            event: Event = _decode(columns.bodies[index])
            return event
        head = read_head(columns.bodies[index])
    except msgspec.DecodeError as error:
        raise DataCorrupt(f"record {number} of the transactions' journal means nothing") from error
    return Prepared(number, head.group, head.client_id, len(head.ids), header.appended_at_ms)


def check_bundle(body: bytes) -> tuple[int, Collection[QueueRef], str]:
    """Returns how many transactions a client's bundle has, the queues it is for, and its group.

    Raises:
        InvalidArgument: it cannot be taken; the sentence says why.
        CorruptBatch: one of its batches is damaged.
        InvalidBatch: no reader could decode one of them.
    """
    try:
        bundle = decode(Bundle, body)
    except MalformedRequest as error:
        raise InvalidArgument(
            f"{TRANSACTION_TOPIC} takes bundles of transactions: {error}"
        ) from error
    names = [bundle.group, bundle.client_id, *bundle.ids]
    # Hardly ever are they to be looked at one by one.
    if not all(names) or (
        max(map(len, names)) > NAME_SURELY_SHORT
        and max(len(name.encode()) for name in names) > NAME_BYTES_MAX
    ):
        raise InvalidArgument(
            f"a group, a client id and a transaction id have 1 to {NAME_BYTES_MAX} bytes"
        )
    if not 1 <= len(bundle.ids) <= BUNDLE_TRANSACTIONS_MAX or not bundle.parts:
        raise InvalidArgument(
            f"a bundle has 1 to {BUNDLE_TRANSACTIONS_MAX} transactions with messages, not"
            f" {len(bundle.ids)}"
        )
    return (
        len(bundle.ids),
        {_check_part(part, len(bundle.ids)) for part in bundle.parts},
        bundle.group,
    )


def _check_part(part: BundlePart, transactions: int) -> QueueRef:
    try:
        header = check_whole(part.batch)
        decode_columns(part.batch, header)
    except UndecodableBatch as error:
        raise InvalidBatch(f"no reader could decode a batch of a transaction: {error}") from error
    except DataCorrupt as error:
        raise CorruptBatch(f"a batch of a transaction cannot be read: {error}") from error
    owners = part.owners
    if len(owners) != header.count or not 0 <= min(owners) <= max(owners) < transactions:
        raise InvalidArgument("each record of a bundle must name its transaction")
    if header.queue.topic in {TRANSACTION_TOPIC, SCHEDULE_TOPIC, AUDIT_TOPIC}:
        raise InvalidArgument(
            f"a transaction cannot send to {header.queue.topic}; name another topic"
        )
    return header.queue
