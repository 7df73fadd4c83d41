"""
Every error that the framework raises on purpose.

    HeadraceError
    ├── DomainError                 a business rule says no; answered to the caller, never retried
    │   ├── AggregateNotFound       the command names an aggregate that was never created
    │   ├── AggregateExists         the command creates an aggregate that is there already
    │   ├── CommandExpired          the command was not decided by its deadline
    │   └── CommandNotAllowed       none of its sender's roles may send the command
    ├── DefinitionError             the application is put together wrongly; found at start
    ├── UnknownMessageType          a stored or received type name is not registered
    ├── SerializationError          a stored or received body does not fit its type
    │   ├── DamagedStream           the event store holds a stream that cannot be read any more
    │   └── NoEventStream           a message of the event topic carries no event stream
    ├── CommandTimeout              no result came in time: the outcome is unknown
    │   └── NotYetHandled           the result is known; a reader that you wait for is still behind
    ├── BrokerUnreachable           no broker answers at the address; nothing was sent
    ├── CommandRefused              the command could not be handed over at all
    │   └── ReadOnlyDatabase        the service can only read its databases, and takes no commands
    ├── LineageError                event store, event topic and readers do not belong together
    ├── SchemaOutOfDate             the database's schema is behind; says the command to run
    ├── ProjectionError             a projection cannot be read, rebuilt or switched
    │   ├── ProjectionNotFound      no projection of that name
    │   ├── LetterNotFound          the projection has not parked that aggregate
    │   └── RebuildRunning          another rebuild of the projection is under way
    ├── ProcessError                an instance of a process cannot be taken up again
    │   └── InstanceNotFound        the process has no such instance, or it is not parked
    ├── EventHandlerError           event handlers have not handled an event
    ├── ResourceFailed              a resource of the application did not open, or did not close
    ├── SparkUnreachable            no cluster and no Connect server of Spark answers at the address
    ├── SubjectKeysError            the keys of personal fields cannot be read or written
    │   └── SubjectKeysAway         their place is away just now; the same call can succeed later
    └── ExtraMissing                an optional dependency is not installed; says which extra

Programmer errors (`TypeError`, `ValueError`) are not in the family.
"""

from typing import Any

__all__ = [
    "AggregateExists",
    "AggregateNotFound",
    "BrokerUnreachable",
    "CommandExpired",
    "CommandNotAllowed",
    "CommandRefused",
    "CommandTimeout",
    "DamagedStream",
    "DefinitionError",
    "DomainError",
    "EventHandlerError",
    "ExtraMissing",
    "HeadraceError",
    "InstanceNotFound",
    "LetterNotFound",
    "LineageError",
    "NoEventStream",
    "NotYetHandled",
    "ProcessError",
    "ProjectionError",
    "ProjectionNotFound",
    "ReadOnlyDatabase",
    "RebuildRunning",
    "ResourceFailed",
    "SchemaOutOfDate",
    "SerializationError",
    "SparkUnreachable",
    "SubjectKeysAway",
    "SubjectKeysError",
    "UnknownMessageType",
]


class HeadraceError(Exception):
    """The root of everything the framework raises on purpose."""


class DomainError(HeadraceError):
    """A business rule says no.

    Raise it, or a subclass, from an aggregate. The command is answered as rejected, with the
    class's name (or its `code`) and the sentence; the rejection is stored and published, so that a
    duplicate of the command gets the same answer.
    """

    code: str = ""


class AggregateNotFound(DomainError):
    """The command names an aggregate that was never created."""


class AggregateExists(DomainError):
    """The command creates an aggregate that is there already."""


class CommandExpired(DomainError):
    """The command was not decided by its deadline, and its handler did not run."""


class CommandNotAllowed(DomainError):
    """None of its sender's roles may send the command, and its handler did not run.

    Unlike other rejections it is not stored: the same command may be handled when its sender has a role.
    """


class DefinitionError(HeadraceError):
    """The application is put together wrongly; the sentence says what to change."""


class UnknownMessageType(HeadraceError):
    """A stored or received type name and version is not registered with the application."""


class SerializationError(HeadraceError):
    """A stored or received body does not fit its type."""


class SubjectKeysError(HeadraceError):
    """The keys of personal fields cannot be read or written."""


class SubjectKeysAway(SubjectKeysError):
    """The place of the keys is away just now: an outage, which is waited for. The same call can succeed later."""


class DamagedStream(SerializationError):
    """The event store holds a stream that cannot be read any more.

    Attributes:
        position: its place in the order of everything stored.
        aggregate_id: whose stream it is.
        version: the aggregate's version after it; None where it took none.
        command_id: of the command that stored it.
        why: what is wrong with it.
    """

    def __init__(
        self, position: int, aggregate_id: str, version: int | None, command_id: str, why: str
    ) -> None:
        what = "a stream without a version" if version is None else f"version {version}"
        super().__init__(
            f"{what} of aggregate {aggregate_id} (position {position}, command {command_id}) cannot"
            f" be read from the event store: {why}; run headrace stream check to see what else is"
            " damaged, and restore it from a backup"
        )
        self.position = position
        self.aggregate_id = aggregate_id
        self.version = version
        self.command_id = command_id
        self.why = why


class NoEventStream(SerializationError):
    """A message of the event topic names no aggregate whose events it has: it is left out."""


class CommandTimeout(HeadraceError):
    """No result came in time: the outcome is unknown; sending the same command id again is safe."""


class NotYetHandled(CommandTimeout):
    """The command has its result, but a reader that you waited for has not handled it in time.

    Attributes:
        result: the command's `CommandResult`.
    """

    def __init__(self, sentence: str, result: Any) -> None:
        super().__init__(sentence)
        self.result = result


class BrokerUnreachable(HeadraceError):
    """No broker answers at the address; the sentence says what to check. Nothing was sent."""


class CommandRefused(HeadraceError):
    """The command could not be handed over to the queue."""


class ReadOnlyDatabase(CommandRefused):
    """The service can only read its databases, and takes no commands; the sentence says why."""


class LineageError(HeadraceError):
    """Event store, event topic and readers do not belong together; says the commands to run."""


class SchemaOutOfDate(HeadraceError):
    """The database's schema is behind this version; the sentence says the command to run."""


class ProjectionError(HeadraceError):
    """A projection cannot be read, rebuilt or switched."""


class ProjectionNotFound(ProjectionError):
    """No projection of that name is defined or stored."""


class LetterNotFound(ProjectionError):
    """There is no such letter: the projection has not parked it, or the command is done."""


class RebuildRunning(ProjectionError):
    """Another rebuild of the same projection is under way."""


class ProcessError(HeadraceError):
    """An instance of a process cannot be taken up again."""


class InstanceNotFound(ProcessError):
    """The process has no such instance, or it is not parked."""


class EventHandlerError(HeadraceError):
    """Event handlers have not handled an event, or there are none of that name."""


class ResourceFailed(HeadraceError):
    """A resource of the application did not open, or did not close; its traceback is in the log."""


class SparkUnreachable(HeadraceError):
    """No cluster and no Connect server of Spark answers at the address; the sentence says what to check."""


class ExtraMissing(HeadraceError):
    """An optional dependency is not installed; the sentence names the extra to install."""
