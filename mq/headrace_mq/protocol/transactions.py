"""
Transactional messages on the wire: the topic they wait in, how they are sent, and bodies.

To prepare transactions is to produce one `Bundle` as the body of a message to queue 0 of
TRANSACTION_TOPIC. It holds ready-made record batches of the queues that the messages are for, so the
broker appends them without decoding if everything in them is committed. The offset of the
acknowledgement is the bundle's number. The number and the place among the bundle's `ids` are the
address of a transaction.

Used by transactional producers and by the broker's transactions. Pure.
"""

from enum import IntEnum

import msgspec

from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import Body

__all__ = [
    "BUNDLE_BYTES_MAX",
    "BUNDLE_TRANSACTIONS_MAX",
    "NAME_BYTES_MAX",
    "NAME_SURELY_SHORT",
    "RESERVED_PREFIX",
    "TRANSACTION_QUEUE",
    "TRANSACTION_TOPIC",
    "Bundle",
    "BundleEnds",
    "BundleHead",
    "BundlePart",
    "Check",
    "ChecksAnswer",
    "EndTransactions",
    "EndedOtherwise",
    "Outcome",
    "TakeChecks",
    "TransactionsDescription",
    "TransactionsEnded",
    "UndecidedTransaction",
    "read_head",
]

TRANSACTION_TOPIC = "%TRANSACTION%"
TRANSACTION_QUEUE = QueueRef(TRANSACTION_TOPIC, 0)
# Headers of messages that were kept aside, and of the broker's own records.
RESERVED_PREFIX = "%transaction-"

# As many as one batch may hold elsewhere (`batch_messages_max`), four times over.
BUNDLE_TRANSACTIONS_MAX = 4_096
# A message is at most 4 MiB with all that surrounds it; so is a bundle.
BUNDLE_BYTES_MAX = 4 << 20
# Of a group and of an id, as for other names.
NAME_BYTES_MAX = 255
# Names of no more characters are within that for certain, at 4 bytes each.
NAME_SURELY_SHORT = NAME_BYTES_MAX // 4


class Outcome(IntEnum):
    """What became of a transaction; a number is never used again for something else."""

    UNDECIDED = 0
    COMMITTED = 1
    ROLLED_BACK = 2
    KEPT_ASIDE = 3
    FORGOTTEN = 4


class BundlePart(Body, frozen=True):
    """One record batch, and for each of its records which transaction of the bundle it is of."""

    batch: bytes
    owners: list[int]


class Bundle(Body, frozen=True):
    """Transactions that are prepared together; the body of a message to TRANSACTION_TOPIC.

    `group` are the producers that may answer for them, `client_id` is the one to be asked first.
    """

    group: str
    client_id: str
    ids: list[str]
    parts: list[BundlePart]


class BundleHead(msgspec.Struct, frozen=True, array_like=True):
    """What a bundle says of itself; its batches stay bytes."""

    group: str
    client_id: str
    ids: list[str]
    parts: msgspec.Raw


class BundleEnds(Body, frozen=True):
    """The decisions on some transactions of one bundle, by their places in it."""

    number: int
    commit: list[int]
    roll_back: list[int]


class EndTransactions(Body, frozen=True):
    """Decides transactions of a group; may be repeated."""

    group: str
    ends: list[BundleEnds]


class EndedOtherwise(Body, frozen=True):
    """A transaction that had been decided in another way before; `outcome` is an Outcome."""

    number: int
    index: int
    outcome: int


class TransactionsEnded(Body, frozen=True):
    """All decisions of the request are durable, and what they commit is; but for these."""

    otherwise: list[EndedOtherwise]


class TakeChecks(Body, frozen=True):
    """Asks for transactions of a group that need an answer, waiting up to `wait_ms` for some."""

    group: str
    client_id: str
    wait_ms: int


class Check(Body, frozen=True):
    """One transaction to be answered for, with EndTransactions; `attempt` counts from 1."""

    number: int
    index: int
    transaction_id: str
    attempt: int
    begun_at_ms: int


class ChecksAnswer(Body, frozen=True):
    """What is to be checked now; empty when the time was up."""

    checks: list[Check]


class UndecidedTransaction(Body, frozen=True):
    """A transaction that waits for its decision."""

    transaction_id: str
    group: str
    begun_at_ms: int
    checks: int


class TransactionsDescription(Body, frozen=True):
    """What waits, the oldest first, at most 100 of them; the request has no body."""

    undecided: int
    oldest: list[UndecidedTransaction]


_head = msgspec.msgpack.Decoder(BundleHead)


def read_head(body: bytes | memoryview) -> BundleHead:
    """Reads a bundle without its batches; raises msgspec.DecodeError for anything else."""
    return _head.decode(body)
