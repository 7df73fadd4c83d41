"""
Messages and streams to bytes and back: the port and its JSON default.

The JSON of a stream is drawn in `domain.stream_body`. An application message on its way:

    {"name": "PaymentDue", "version": 1, "message_id": "…", "aggregate_id": "a-1", "command_id": "…",
     "correlation_id": "…", "recorded_at": "…", "items": {}, "data": {"amount": 5}}

and of a command:

    {"name": "Deposit", "version": 1, "command_id": "…", "correlation_id": "…", "items": {},
     "data": {"account_id": "a-1", "amount": 5}}

Used by what stores or moves bytes; makes `domain` values.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Protocol

import msgspec
from pydantic import ValidationError

from headrace.access.principal import Principal
from headrace.domain.form import EXACT
from headrace.domain.identity import check_id
from headrace.domain.message import (
    ApplicationMessage,
    Command,
    DomainEvent,
    MessageContext,
)
from headrace.domain.registry import Registry
from headrace.domain.stream import EventStream, Rejection, stream_of
from headrace.domain.stream_body import (
    MALFORMED,
    MessageBody,
    RejectionBody,
    StreamBody,
    body_error,
)
from headrace.errors import DefinitionError, SerializationError, UnknownMessageType
from headrace.subjects.cipher import FieldCipher
from headrace.subjects.keys import SubjectKeys

__all__ = ["CommandEnvelope", "JsonSerializer", "Serializer", "decode_result", "encode_result"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEnvelope:
    """A command on its way, with what the framework knows about it.

    Raises ValueError where an id is one that the event store cannot keep.

    Attributes:
        command: the user's command.
        aggregate_id: the id of the aggregate that it changes, as text: rendered here, once.
        command_id: unique per aggregate; the same id twice is the same command.
        correlation_id: first command of the chain; the command's own id at its start.
        items: text values handed on to events and to the commands they cause.
        due: the moment at which the queue delivers it, or how long after the queue has it; None: at
            once. Of these a delay alone is encoded.
        deadline: if the command is not decided by then, it is rejected; None: it has no end.
        principal: who sent it, which a header of its message says, and so is not encoded; None: not said.
    """

    command: Command
    command_id: str
    correlation_id: str
    items: Mapping[str, str] = field(default_factory=dict)
    due: datetime | timedelta | None = None
    deadline: datetime | None = None
    principal: Principal | None = None
    aggregate_id: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_id("a command id", self.command_id)
        if self.correlation_id != self.command_id:
            check_id("a correlation id", self.correlation_id)
        object.__setattr__(self, "aggregate_id", self.command.aggregate_id)


class Serializer(Protocol):
    """Turns commands and streams into bytes and back.

    The decoding methods raise `UnknownMessageType` for a name that is not registered and
    `SerializationError` for bytes that do not fit; for a message that claims to be of no aggregate the
    one of `NoEventStream`.
    """

    @property
    def cipher(self) -> FieldCipher | None:
        """Seals and opens personal fields; None: no message has any."""
        ...

    def encode_command(self, envelope: CommandEnvelope) -> bytes:
        """Encodes a command with its envelope."""
        ...

    def decode_command(self, data: bytes) -> CommandEnvelope:
        """Decodes what `encode_command` made."""
        ...

    def encode_stream(self, stream: EventStream) -> bytes:
        """Encodes a stream whole."""
        ...

    def decode_stream(self, data: bytes | str) -> EventStream:
        """Decodes what `encode_stream` made."""
        ...

    def encode_message(self, message: ApplicationMessage, context: MessageContext) -> bytes:
        """Encodes an application message with its context."""
        ...

    def decode_message(self, data: bytes) -> tuple[ApplicationMessage, MessageContext]:
        """Decodes what `encode_message` made."""
        ...

    def decode_published(self, data: bytes) -> EventStream:
        """Like `decode_stream`, for readers that change nothing in what they get.

        They may all get the same value: every projection and process manager of a process reads
        the same messages.
        """
        ...


# Streams whose bytes this process keeps, because another part will soon need them: about as many as
# are between a decision and its append, or between the fastest and the slowest reader of the topic.
# Larger streams are not kept, so each of these memories takes 16 MB at most.
REMEMBERED_MAX = 2_048
REMEMBERED_BYTES_MAX = 8 << 10
_MILLISECOND = timedelta(milliseconds=1)
# Of a delay that is read: a leap year, as long as the broker keeps a message.
_DELAY_MS_MAX = 366 * 86_400_000


# None of them lives long enough, or refers back, to be of interest to the garbage collector, which
# would otherwise cost as much as decoding.
class _WireCommand(msgspec.Struct, gc=False):
    name: str
    version: int
    command_id: str
    correlation_id: str
    data: dict[str, Any]
    items: dict[str, str] = {}
    # Of one that waits in a database: how long the queue is to keep it.
    delay_ms: Annotated[int, msgspec.Meta(ge=0, le=_DELAY_MS_MAX)] | msgspec.UnsetType = (
        msgspec.UNSET
    )
    deadline: datetime | msgspec.UnsetType = msgspec.UNSET


class _WireApplicationMessage(msgspec.Struct, gc=False):
    name: str
    version: int
    message_id: str
    aggregate_id: str
    command_id: str
    correlation_id: str
    recorded_at: datetime
    data: dict[str, Any]
    items: dict[str, str] = {}


_encode = msgspec.json.Encoder().encode
_decode_command = msgspec.json.Decoder(_WireCommand).decode
_decode_message = msgspec.json.Decoder(_WireApplicationMessage).decode
_decode_stream = msgspec.json.Decoder(StreamBody).decode
_encode_value = msgspec.json.Encoder().encode
_decode_value = msgspec.json.Decoder().decode


def encode_result(value: object) -> str:
    """Encodes what a handler hands to `set_result`: any JSON value or msgspec-encodable one.

    Raises:
        SerializationError: the value has no JSON form.
    """
    try:
        return _encode_value(value).decode()
    except (TypeError, msgspec.MsgspecError) as error:
        raise SerializationError(f"a command result must be a JSON value: {error}") from error


def decode_result(text: str | None) -> Any:
    """Decodes a command's result; None stays None."""
    return None if text is None else _decode_value(text)


class JsonSerializer:
    """JSON by msgspec outside and by pydantic's rules inside.

    Old versions of messages become newer ones where they are decoded, so that every reader meets
    the classes of today: loading, projections, process managers, Spark, and the command topic.

    Args:
        commands: the command types that may come in.
        events: the event types that may come in.
        messages: the application messages that may come in; none by default.
        keys: of personal fields; None: no message may have any.

    Raises:
        DefinitionError: a message has personal fields, and there are no keys.
    """

    def __init__(
        self,
        commands: Registry[Command],
        events: Registry[DomainEvent],
        messages: Registry[ApplicationMessage] | None = None,
        keys: SubjectKeys | None = None,
    ) -> None:
        self._messages = Registry("application message") if messages is None else messages
        self._commands = commands
        self._events = events
        personal = any(each.personal for each in (commands, events, self._messages))
        if personal and keys is None:
            raise DefinitionError(
                "messages have personal fields, and nothing keeps their keys: give keys, such as"
                " DatabaseKeys(URL) of headrace.stores.subject_keys"
            )
        # Not shared: a rebuild begins without keys that were destroyed since.
        self._cipher = FieldCipher(keys) if personal and keys is not None else None
        for each in (commands, events, self._messages):
            each.cipher = self._cipher
        # Both oldest first. Streams are known by identity, and kept so that it stays theirs.
        self._encoded: OrderedDict[int, tuple[EventStream, bytes]] = OrderedDict()
        self._published: OrderedDict[bytes, EventStream] = OrderedDict()

    @property
    def events(self) -> Registry[DomainEvent]:
        """The event types that may come in."""
        return self._events

    @property
    def cipher(self) -> FieldCipher | None:
        """Seals and opens personal fields; None: no message has any."""
        return self._cipher

    def close(self) -> None:
        """Closes what the key store has opened."""
        if self._cipher is not None:
            self._cipher.close()

    @property
    def subject_keys(self) -> SubjectKeys:
        """The keys of personal fields; raises DefinitionError where no message has any."""
        if self._cipher is None:
            raise DefinitionError(
                "the application has no personal fields; see docs/forgetting.md for how to declare them"
            )
        return self._cipher.keys

    def encode_command(self, envelope: CommandEnvelope) -> bytes:
        """Encodes a command with its envelope.

        Raises:
            UnknownMessageType: no reader could decode it: its class has no handler.
        """
        command = envelope.command
        if type(command) not in self._commands.classes:
            raise UnknownMessageType(
                f"no handler is registered for {type(command).__name__}; add one with @app.handles"
            )
        return _encode(
            _WireCommand(
                name=command.message_name,
                version=command.message_version,
                command_id=envelope.command_id,
                correlation_id=envelope.correlation_id,
                data=self._fields(command),
                items=dict(envelope.items),
                delay_ms=msgspec.UNSET
                if not isinstance(envelope.due, timedelta)
                else envelope.due // _MILLISECOND,
                deadline=msgspec.UNSET if envelope.deadline is None else envelope.deadline,
            )
        )

    def decode_command(self, data: bytes) -> CommandEnvelope:
        """Decodes what `encode_command` made."""
        try:
            wire = _decode_command(data)
        except MALFORMED as error:
            raise SerializationError(f"a command message does not decode: {error}") from error
        return CommandEnvelope(
            command=_validate(*self._commands.resolve(wire.name, wire.version, wire.data)),
            command_id=wire.command_id,
            correlation_id=wire.correlation_id,
            items=wire.items,
            due=None if wire.delay_ms is msgspec.UNSET else timedelta(milliseconds=wire.delay_ms),
            deadline=None if wire.deadline is msgspec.UNSET else wire.deadline,
        )

    def encode_stream(self, stream: EventStream) -> bytes:
        """Encodes a stream whole.

        The same value asked for again soon, by the store after the decision, gives the same bytes.

        Raises:
            UnknownMessageType: no reader could decode it: no aggregate applies one of its events.
        """
        encoded = self._encoded.pop(id(stream), None)
        if encoded is not None:
            return encoded[1]
        for event in stream.events:
            if type(event) not in self._events.classes:
                raise UnknownMessageType(
                    f"no aggregate of the application applies {type(event).__name__};"
                    " add the one that does with app.add(…)"
                )
        for message in stream.messages:
            self._check_known(message)
        data = self._encode_stream(stream)
        if len(data) <= REMEMBERED_BYTES_MAX:
            self._encoded[id(stream)] = (stream, data)
            # A plain dict would look for its oldest entry past all that were deleted.
            while len(self._encoded) > REMEMBERED_MAX:
                self._encoded.popitem(last=False)
        return data

    def decode_stream(self, data: bytes | str) -> EventStream:
        """Decodes what `encode_stream` made."""
        try:
            wire = _decode_stream(data)
        except MALFORMED as error:
            raise body_error(data, error) from error
        events, messages = self._events.resolve, self._messages.resolve
        try:
            return stream_of(
                wire.aggregate_type,
                wire.aggregate_id,
                wire.version,
                wire.command_id,
                wire.correlation_id,
                wire.recorded_at.astimezone(UTC),
                tuple(
                    [_validate(*events(each.name, each.version, each.data)) for each in wire.events]
                ),
                tuple(
                    [
                        _validate(*messages(each.name, each.version, each.data))
                        for each in wire.messages
                    ]
                )
                if wire.messages
                else (),
                wire.result,
                wire.items,
                None if wire.rejection is None else self._rejection(wire.rejection),
                wire.seen_version or None,
            )
        except MALFORMED as error:
            raise body_error(data, error) from error

    def encode_message(self, message: ApplicationMessage, context: MessageContext) -> bytes:
        """Encodes an application message with its context.

        Raises:
            UnknownMessageType: no reader could decode it: its class is not part of the application.
        """
        self._check_known(message)
        return _encode(
            _WireApplicationMessage(
                name=message.message_name,
                version=message.message_version,
                message_id=context.message_id,
                aggregate_id=context.aggregate_id,
                command_id=context.command_id,
                correlation_id=context.correlation_id,
                recorded_at=context.recorded_at,
                data=self._fields(message),
                items=context.items,
            )
        )

    def decode_message(self, data: bytes) -> tuple[ApplicationMessage, MessageContext]:
        """Decodes what `encode_message` made."""
        try:
            wire = _decode_message(data)
        except MALFORMED as error:
            raise SerializationError(f"an application message does not decode: {error}") from error
        message = _validate(*self._messages.resolve(wire.name, wire.version, wire.data))
        context = MessageContext(
            message_id=wire.message_id,
            aggregate_id=wire.aggregate_id,
            command_id=wire.command_id,
            correlation_id=wire.correlation_id,
            recorded_at=wire.recorded_at.astimezone(UTC),
            items=wire.items,
        )
        return message, context

    def _check_known(self, message: ApplicationMessage) -> None:
        if type(message) not in self._messages.classes:
            raise UnknownMessageType(
                f"{type(message).__name__} is not part of the application; bind it with app.add(…)"
            )

    def _rejection(self, wire: RejectionBody) -> Rejection:
        version, data = wire.command_version, wire.command_data
        # A command that has no handler any more stays as it is: no code can react to it either.
        if not self._commands.can_upcast(wire.command_name, version):
            data = data if self._cipher is None else self._cipher.unseal(wire.command_name, data)
        else:
            command_type, data = self._commands.resolve(wire.command_name, version, data)
            version = command_type.message_version
        return Rejection(
            error=wire.error,
            sentence=wire.sentence,
            command_name=wire.command_name,
            command_version=version,
            command_data=data,
        )

    def decode_published(self, data: bytes) -> EventStream:
        """Like `decode_stream`; the same bytes again soon give the same value."""
        stream = self._published.get(data)
        if stream is None:
            stream = self.decode_stream(data)
            if len(data) <= REMEMBERED_BYTES_MAX:
                self._published[data] = stream
                if len(self._published) > REMEMBERED_MAX:
                    self._published.popitem(last=False)
        return stream

    def _encode_stream(self, stream: EventStream) -> bytes:
        rejection = stream.rejection
        return _encode(
            StreamBody(
                aggregate_type=stream.aggregate_type,
                aggregate_id=stream.aggregate_id,
                version=stream.version,
                command_id=stream.command_id,
                correlation_id=stream.correlation_id,
                recorded_at=stream.recorded_at,
                result=stream.result,
                items=dict(stream.items),
                events=list(map(self._wire_message, stream.events)),
                messages=list(map(self._wire_message, stream.messages)) or msgspec.UNSET,
                seen_version=stream.seen_version or msgspec.UNSET,
                rejection=None if rejection is None else self._rejection_body(rejection),
            )
        )

    def _rejection_body(self, rejection: Rejection) -> RejectionBody:
        name, version = rejection.command_name, rejection.command_version
        data = dict(rejection.command_data)
        command_type = self._commands.types.get((name, version))
        if self._cipher is not None and command_type is not None:
            data = self._cipher.seal(name, command_type.message_personal, data)
        return RejectionBody(rejection.error, rejection.sentence, name, version, data)

    def _fields(self, message: Command | DomainEvent | ApplicationMessage) -> Any:
        """A message's own fields as JSON, which goes into its envelope as it is."""
        # What `model_dump_json` calls, at a seventh of the price.
        data = message.__pydantic_serializer__.to_json(message)
        form = message.message_form
        if form is not EXACT:
            (form or message.complete_form()).check(message, data)
        if self._cipher is not None:
            data = self._cipher.seal_json(message.message_name, message.message_personal, data)
        return msgspec.Raw(data)

    def _wire_message(self, message: DomainEvent | ApplicationMessage) -> MessageBody:
        return MessageBody(message.message_name, message.message_version, self._fields(message))


def _validate(message_type: Any, data: dict[str, Any]) -> Any:
    try:
        # What `model_validate` calls, which costs as much again by its own choices of a mode.
        return message_type.__pydantic_validator__.validate_python(data)
    except ValidationError as error:
        what = f"{message_type.__name__} version {message_type.message_version}"
        if (
            message_type.message_personal
        ):  # Errors are logged and parked, and would tell the values.
            fields = {".".join(map(str, each["loc"])): each["type"] for each in error.errors()}
            raise SerializationError(f"{what} does not fit: {fields}") from None
        raise SerializationError(f"{what}: {error}") from error
