"""
Commands and domain events: frozen pydantic models with a stable name and version; and their contexts.

A message class carries its registered name, never its module path, so that code may move. Sits
between: user code, which subclasses, and `registry`, which finds the class of a stored name.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, TypeVar

import msgspec
from pydantic import BaseModel, ConfigDict
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

from headrace.domain.form import Form, form_of
from headrace.domain.identity import id_text
from headrace.errors import DefinitionError
from headrace.subjects.personal import Personal, personal_fields

__all__ = [
    "MAIN_TOPIC",
    "AggregateId",
    "AggregateIdOf",
    "ApplicationMessage",
    "Command",
    "DomainEvent",
    "EventContext",
    "MessageContext",
]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,126}")
# Short enough to leave room for the application's name in that of the queue's topic.
_TOPIC = re.compile(r"[a-z][a-z0-9_]{0,62}")

# The topic of every command that has none of its own.
MAIN_TOPIC: Final = "main"


class _AggregateIdMark:
    """Marks the field of a command that names its aggregate."""

    def __repr__(self) -> str:
        return "AggregateId"


_MARK = _AggregateIdMark()

# The type of the one field of a command that names the aggregate it changes.
AggregateId = Annotated[str, _MARK]

Id = TypeVar("Id")

# The same for ids that are no text: `AggregateIdOf[UUID]`; see `id_text` for what they become.
AggregateIdOf = Annotated[Id, _MARK]


class _Message(BaseModel):
    # What is no number has no JSON form and no order: `null` would be stored in its place.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    message_name: ClassVar[str] = ""
    message_version: ClassVar[int] = 1
    # None: not all that its fields are made of is defined yet.
    message_form: ClassVar[Form | None] = None
    # Those that are encrypted wherever the message is stored or sent.
    message_personal: ClassVar[Mapping[str, Personal]] = MappingProxyType({})

    def __init_subclass__(cls, **kwargs: Any) -> None:
        # The class arguments reach this method, too, and object's own takes none.
        super().__init_subclass__()

    @classmethod
    def __pydantic_init_subclass__(
        cls, *, name: str | None = None, version: int = 1, **kwargs: Any
    ) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        cls.message_name = name or cls.__name__
        cls.message_version = version
        if not _NAME.fullmatch(cls.message_name):
            raise DefinitionError(
                f"message name {cls.message_name!r}: start with a letter and use letters, digits,"
                " '_', '.', '-' (at most 127 characters)"
            )
        if version < 1:
            raise DefinitionError(f"{cls.message_name}: a version is 1 or more, not {version}")
        cls.message_personal = personal_fields(cls)
        cls.message_form = form_of(cls) if cls.__pydantic_complete__ else None

    @classmethod
    def complete_form(cls) -> Form:
        """Returns how the class's messages are encoded, once all of its fields are defined.

        Raises:
            DefinitionError: its messages could never be read again, or a field's type is unknown.
        """
        if cls.message_form is None:
            try:
                cls.model_rebuild()
            except (PydanticUserError, PydanticUndefinedAnnotation) as error:
                raise DefinitionError(
                    f"{cls.__name__}: the type of a field is not defined: {error}"
                ) from error
            cls.message_personal = personal_fields(cls)
            cls.message_form = form_of(cls)
        return cls.message_form


class Command(_Message):
    """A request to change one aggregate.

    Subclass it with the command's fields; annotate the field that names the aggregate as
    `AggregateId`. Class arguments: `name` (default: the class name), `version` (default 1),
    `topic` (default: the topic that commands share) and `internal`: True for a command that only
    your own code sends; the HTTP gateway does not offer it.

        class Deposit(Command):
            account_id: AggregateId
            amount: int

    Raises:
        DefinitionError: not exactly one field is an `AggregateId`, or a name is malformed.
    """

    aggregate_id_field: ClassVar[str] = ""
    message_topic: ClassVar[str] = MAIN_TOPIC
    message_internal: ClassVar[bool] = False

    @classmethod
    def __pydantic_init_subclass__(
        cls, *, topic: str = MAIN_TOPIC, internal: bool = False, **kwargs: Any
    ) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if not _TOPIC.fullmatch(topic):
            raise DefinitionError(
                f"command {cls.__name__}: topic {topic!r}: start with a lower-case letter and use"
                " lower-case letters, digits and '_' (at most 63 characters)"
            )
        cls.message_topic = topic
        cls.message_internal = internal
        marked = [field for field, info in cls.model_fields.items() if _MARK in info.metadata]
        if len(marked) != 1:
            raise DefinitionError(
                f"command {cls.__name__}: annotate exactly one field as AggregateId,"
                f" not {len(marked)}"
            )
        cls.aggregate_id_field = marked[0]
        if marked[0] in cls.message_personal:
            raise DefinitionError(
                f"command {cls.__name__}: {marked[0]} names the aggregate and cannot be personal:"
                " ids are keys of messages and rows; use an id that tells nothing of the person"
            )

    @property
    def aggregate_id(self) -> str:
        """The id of the aggregate that this command changes, as text.

        Raises:
            ValueError: the id is unusable.
        """
        return id_text("an aggregate id", getattr(self, self.aggregate_id_field))


class DomainEvent(_Message):
    """A fact that an aggregate decided.

    Subclass it with the event's fields. The aggregate's id, the version and the time are in the
    `EventContext` that comes with it. Class arguments: `name` and `version`, as for commands.
    """


class ApplicationMessage(_Message):
    """A message that a command's handler publishes, in addition to events or instead of them.

    For facts that belong to no aggregate: a check that was passed, a request to another system.
    Subclass it with the fields; class arguments: `name` and `version`, as for commands.
    """


class MessageContext(BaseModel):
    """The circumstances of an application message: its ids and its time.

    Args:
        message_id: the same for every delivery of the message.
        aggregate_id: of the command whose handler published it.
        command_id: the command.
        correlation_id: the first command of the chain.
        recorded_at: when it was published, UTC.
        items: text values that came with the command.
    """

    model_config = ConfigDict(frozen=True)

    message_id: str
    aggregate_id: str
    command_id: str
    correlation_id: str
    recorded_at: datetime
    items: dict[str, str] = {}


class EventContext(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The circumstances of a stored event: its aggregate, its place and its time.

    Its values are not checked: there is one context for every folded event, the stream was
    checked before, and a second check would cost as much as the fold.

    Args:
        aggregate_type: registered name of the aggregate class.
        aggregate_id: whose event it is.
        version: the aggregate's version after it; all events of one command share it.
        sequence: 1, 2, … among the events of one command.
        command_id: the command that caused it.
        correlation_id: the first command of the chain of commands and events.
        recorded_at: when the aggregate's service decided it, UTC.
        items: text values that go from command to event to command.
    """

    aggregate_type: str
    aggregate_id: str
    version: int
    sequence: int
    command_id: str
    correlation_id: str
    recorded_at: datetime
    items: dict[str, str] = {}

    @property
    def event_id(self) -> str:
        """The same for every delivery of the event."""
        return f"{self.aggregate_id}/{self.version}/{self.sequence}"
