"""
Every error that the queue raises on purpose, and the code that stands for it on the wire.

    MessageQueueError
    ├── BrokerError               the broker answered with an error code
    │   ├── UnsupportedVersion    fatal   the two sides speak different versions
    │   ├── MalformedRequest      fatal   the broker could not read a frame
    │   ├── FrameTooLarge         fatal   a frame is over the limit of its connection
    │   ├── TooManyConnections    fatal   the broker's connection limit is reached
    │   ├── UnknownRequest                the broker does not know the request code
    │   ├── InvalidArgument               a value of the request is out of its range
    │   ├── TopicNotFound                 no such topic, and auto-creation is off
    │   ├── TopicExists                   the topic exists with other settings
    │   ├── QueueNotFound                 the topic has no queue of that number
    │   ├── OffsetOutOfRange              the offset is below the first or above the next one
    │   ├── CorruptBatch                  a checksum does not fit its bytes
    │   ├── InvalidBatch                  a batch is not built so that readers could decode it
    │   ├── SequenceGap                   a producer's sequence jumped
    │   ├── NotGroupMember                the member is unknown or was replaced: join again
    │   ├── StaleLock                     a lock on a queue went to another member: start over
    │   ├── ReplyUndeliverable            the caller that waits for a reply is not connected
    │   ├── StoreReadOnly                 a flush failed: nothing is accepted until a restart
    │   ├── StoreFull                     the disk is full
    │   ├── BrokerStopping                the broker is shutting down: try again soon
    │   ├── NotLeader                     the broker is a replica: ask the others of its group
    │   ├── QueueFrozen                   the queue takes or gives no messages: use another one
    │   ├── QueueElsewhere                another broker group has the queue: name all groups
    │   ├── TopicInUse                    what shall be deleted is not frozen or not consumed
    │   ├── GroupNotFound                 the group has neither offsets nor members
    │   ├── GroupNotEmpty                   the group has members, which would overwrite its offsets
    │   ├── InconsistentGroup                  the group's members filter, divide, handle or retry otherwise
    │   ├── NameTaken                     another client uses the member's chosen name
    │   ├── ScheduleFull                  as many scheduled messages wait as may
    │   ├── TransactionsFull              as many transactions are undecided as may be
    │   ├── Throttled                     a quota is used up, or a group full: try again later
    │   ├── Overloaded            fatal   the broker's memory for requests is used up: try again
    │   ├── BacklogFull                   a group is as far behind as it may be
    │   ├── ArchiveUnavailable            old messages cannot be asked for now: try again soon
    │   ├── LoginFailed           fatal   the client has not logged in, or its name or password is wrong
    │   └── NotPermitted                  the user may not do that
    ├── ConnectionLost            the connection ended before an answer came: outcome unknown
    │   └── TlsFailed             the two sides do not trust each other, or do not both speak TLS
    ├── SendTimeout               no acknowledgement in time: outcome unknown, retrying is safe
    ├── RequestTimeout            no answer in time
    ├── BufferFull                a producer holds as much as it may: nothing was sent
    ├── HandlerTimeout            a consumer's handler took too long and was cancelled
    ├── DecidedOtherwise          a transaction had been decided in another way before
    ├── Closed                    the producer or consumer was closed
    ├── DataCorrupt               bytes on disk or on the wire fail their checksum
    │   └── UndecodableBatch      the checksums of a batch are right, but no reader can decode it
    └── FormatTooNew              a file or frame was written by a newer version

Programmer errors (`TypeError`, `ValueError`) are not in the family.
"""

from enum import IntEnum

__all__ = [
    "ArchiveUnavailable",
    "BacklogFull",
    "BrokerError",
    "BrokerStopping",
    "BufferFull",
    "Closed",
    "ConnectionLost",
    "CorruptBatch",
    "DataCorrupt",
    "DecidedOtherwise",
    "FormatTooNew",
    "FrameTooLarge",
    "GroupNotEmpty",
    "GroupNotFound",
    "HandlerTimeout",
    "InconsistentGroup",
    "InvalidArgument",
    "InvalidBatch",
    "LoginFailed",
    "MalformedRequest",
    "MessageQueueError",
    "NameTaken",
    "NotGroupMember",
    "NotLeader",
    "NotPermitted",
    "OffsetOutOfRange",
    "Overloaded",
    "QueueElsewhere",
    "QueueFrozen",
    "QueueNotFound",
    "ReplyUndeliverable",
    "RequestTimeout",
    "ResponseCode",
    "ScheduleFull",
    "SendTimeout",
    "SequenceGap",
    "StaleLock",
    "StoreFull",
    "StoreReadOnly",
    "Throttled",
    "TlsFailed",
    "TooManyConnections",
    "TopicExists",
    "TopicInUse",
    "TopicNotFound",
    "TransactionsFull",
    "UndecodableBatch",
    "UnknownRequest",
    "UnsupportedVersion",
    "error_for",
]


class ResponseCode(IntEnum):
    """The code of an answer; a number is never used again for something else."""

    OK = 0
    UNSUPPORTED_VERSION = 1
    MALFORMED_REQUEST = 2
    FRAME_TOO_LARGE = 3
    TOO_MANY_CONNECTIONS = 4
    UNKNOWN_REQUEST = 5
    INVALID_ARGUMENT = 6
    TOPIC_NOT_FOUND = 7
    TOPIC_EXISTS = 8
    QUEUE_NOT_FOUND = 9
    OFFSET_OUT_OF_RANGE = 10
    CORRUPT_BATCH = 11
    SEQUENCE_GAP = 12
    NOT_GROUP_MEMBER = 13
    REPLY_UNDELIVERABLE = 14
    STORE_READ_ONLY = 15
    STORE_FULL = 16
    BROKER_STOPPING = 17
    INTERNAL_ERROR = 18
    QUEUE_FROZEN = 19
    TOPIC_IN_USE = 20
    GROUP_NOT_FOUND = 21
    GROUP_NOT_EMPTY = 22
    STALE_LOCK = 25
    SCHEDULE_FULL = 29
    TRANSACTIONS_FULL = 30
    THROTTLED = 31
    BACKLOG_FULL = 32
    ARCHIVE_UNAVAILABLE = 33
    OVERLOADED = 34
    INCONSISTENT_GROUP = 35
    INVALID_BATCH = 36
    NOT_LEADER = 37
    QUEUE_ELSEWHERE = 38
    NAME_TAKEN = 40
    LOGIN_FAILED = 41
    NOT_PERMITTED = 42


class MessageQueueError(Exception):
    """The root of everything the queue raises on purpose."""


class BrokerError(MessageQueueError):
    """The broker answered with an error code.

    Attributes:
        code: what went wrong, for a machine.
        fatal: the connection is closed after this error.
        retriable: the same request may succeed later without a change.
        elsewhere: another queue of the topic may take now what this one refuses.
    """

    code: ResponseCode = ResponseCode.INTERNAL_ERROR
    fatal = False
    retriable = False
    elsewhere = False


class UnsupportedVersion(BrokerError):
    """The two sides speak different protocol versions."""

    code = ResponseCode.UNSUPPORTED_VERSION
    fatal = True


class MalformedRequest(BrokerError):
    """The broker could not read a frame or its body."""

    code = ResponseCode.MALFORMED_REQUEST
    fatal = True


class FrameTooLarge(BrokerError):
    """A frame is over the size limit of its connection."""

    code = ResponseCode.FRAME_TOO_LARGE
    fatal = True


class TooManyConnections(BrokerError):
    """The broker serves as many connections as its settings allow."""

    code = ResponseCode.TOO_MANY_CONNECTIONS
    fatal = True
    retriable = True


class UnknownRequest(BrokerError):
    """The broker does not know this request code."""

    code = ResponseCode.UNKNOWN_REQUEST


class InvalidArgument(BrokerError):
    """A value in the request is out of its range; the sentence says which."""

    code = ResponseCode.INVALID_ARGUMENT


class TopicNotFound(BrokerError):
    """No such topic, and the broker does not create topics by itself."""

    code = ResponseCode.TOPIC_NOT_FOUND


class TopicExists(BrokerError):
    """The topic exists with other settings."""

    code = ResponseCode.TOPIC_EXISTS


class QueueNotFound(BrokerError):
    """The topic has no queue of that number."""

    code = ResponseCode.QUEUE_NOT_FOUND


class OffsetOutOfRange(BrokerError):
    """The offset is below the queue's first or above its next one."""

    code = ResponseCode.OFFSET_OUT_OF_RANGE


class CorruptBatch(BrokerError):
    """A record batch arrived with a checksum that does not fit its bytes."""

    code = ResponseCode.CORRUPT_BATCH


class InvalidBatch(BrokerError):
    """A record batch with a right checksum that readers could not decode; the sentence says why."""

    code = ResponseCode.INVALID_BATCH


class SequenceGap(BrokerError):
    """A producer's sequence number jumped: a batch before this one is missing."""

    code = ResponseCode.SEQUENCE_GAP


class NotGroupMember(BrokerError):
    """The member is unknown to its group or was replaced; join again."""

    code = ResponseCode.NOT_GROUP_MEMBER


class StaleLock(BrokerError):
    """The member's lock on a queue is not valid any more: another member may handle the queue."""

    code = ResponseCode.STALE_LOCK


class ReplyUndeliverable(BrokerError):
    """The client that waits for the reply is not connected."""

    code = ResponseCode.REPLY_UNDELIVERABLE


class StoreReadOnly(BrokerError):
    """A flush failed, so the broker accepts nothing until it is restarted."""

    code = ResponseCode.STORE_READ_ONLY


class StoreFull(BrokerError):
    """The broker's disk is full."""

    code = ResponseCode.STORE_FULL
    retriable = True


class BrokerStopping(BrokerError):
    """The broker is shutting down."""

    code = ResponseCode.BROKER_STOPPING
    retriable = True


class NotLeader(BrokerError):
    """The broker is a replica of its group: another one serves clients."""

    code = ResponseCode.NOT_LEADER
    retriable = True


class QueueFrozen(BrokerError):
    """The queue is frozen for writing or for reading."""

    code = ResponseCode.QUEUE_FROZEN
    elsewhere = True


class QueueElsewhere(BrokerError):
    """The topic is spread over several broker groups, and another one of them has this queue."""

    code = ResponseCode.QUEUE_ELSEWHERE


class TopicInUse(BrokerError):
    """What shall be deleted is not frozen, or groups have not consumed all of it."""

    code = ResponseCode.TOPIC_IN_USE


class GroupNotFound(BrokerError):
    """The group has neither committed offsets nor members."""

    code = ResponseCode.GROUP_NOT_FOUND


class GroupNotEmpty(BrokerError):
    """The group has members at work, which would overwrite its offsets."""

    code = ResponseCode.GROUP_NOT_EMPTY


class InconsistentGroup(BrokerError):
    """A member would filter, divide, handle or retry otherwise than those of its group do."""

    code = ResponseCode.INCONSISTENT_GROUP


class NameTaken(BrokerError):
    """Another client is in the group under the name that was chosen for this member."""

    code = ResponseCode.NAME_TAKEN


class ScheduleFull(BrokerError):
    """As many scheduled messages wait as the broker's settings allow."""

    code = ResponseCode.SCHEDULE_FULL


class TransactionsFull(BrokerError):
    """As many transactions are undecided as the broker's settings allow."""

    code = ResponseCode.TRANSACTIONS_FULL
    retriable = True


class Throttled(BrokerError):
    """A client or topic is over its quota, and the request has waited as long as it may."""

    code = ResponseCode.THROTTLED
    retriable = True


class Overloaded(BrokerError):
    """The broker's memory for requests is used up, and this connection held some for longest."""

    code = ResponseCode.OVERLOADED
    fatal = True
    retriable = True


class ArchiveUnavailable(BrokerError):
    """The database that holds the broker's old messages does not answer."""

    code = ResponseCode.ARCHIVE_UNAVAILABLE
    retriable = True


class BacklogFull(BrokerError):
    """A group of the topic is as far behind as it may be, and its policy is to refuse more."""

    code = ResponseCode.BACKLOG_FULL


class LoginFailed(BrokerError):
    """The client has not logged in, or its name or password is wrong; the sentence says what to check."""

    code = ResponseCode.LOGIN_FAILED
    fatal = True


class NotPermitted(BrokerError):
    """The user may not do that; the sentence names the action and the resource."""

    code = ResponseCode.NOT_PERMITTED


class ConnectionLost(MessageQueueError):
    """The connection ended before an answer came: the outcome is unknown."""


class TlsFailed(ConnectionLost):
    """The two sides do not trust each other, or do not both speak TLS; the sentence says what to change."""


class SendTimeout(MessageQueueError):
    """No acknowledgement came in time: the outcome is unknown, sending again is safe."""


class RequestTimeout(MessageQueueError):
    """No answer came in time."""


class BufferFull(MessageQueueError):
    """A producer holds as much as it may: nothing was sent, wait for earlier messages first."""


class HandlerTimeout(MessageQueueError):
    """A consumer's handler took longer than its limit and was cancelled."""


class DecidedOtherwise(MessageQueueError):
    """A transaction had been decided in another way before; the sentence says how."""


class Closed(MessageQueueError):
    """The producer or consumer was closed."""


class DataCorrupt(MessageQueueError):
    """Bytes on disk or from the wire fail their checksum or their bounds."""


class UndecodableBatch(DataCorrupt):
    """The checksums of a record batch are right, but its payload is none: readers leave it out."""


class FormatTooNew(MessageQueueError):
    """A file or frame was written by a newer version than this one reads."""


_BY_CODE: dict[ResponseCode, type[BrokerError]] = {
    error.code: error for error in BrokerError.__subclasses__()
}


def error_for(code: int, sentence: str) -> BrokerError:
    """Turns an answer's code and sentence back into the exception the broker raised."""
    try:
        known = ResponseCode(code)
    except ValueError:
        return BrokerError(f"{sentence} (unknown response code {code})")
    return _BY_CODE.get(known, BrokerError)(sentence)
