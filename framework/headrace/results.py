"""
The result of a command, and its form on the way back to the caller.

A reply is the JSON of a `CommandResult`:

    {"status": "executed", "aggregate_id": "a-1", "command_id": "…", "version": 3,
     "value": {"balance": 5}, "error": "", "sentence": "", "place": [2, 17]}

Used by the command service, which sends it, and by the bus, which returns it to the caller. Pure.
"""

import warnings
from dataclasses import dataclass, field, fields
from traceback import extract_stack
from typing import Any, Final, Literal

import msgspec

from headrace.errors import DomainError, HeadraceError

__all__ = ["CommandResult", "Reply", "WatchedResult", "decode_reply", "encode_reply"]

_NULL: Final = msgspec.Raw(b"null")

Status = Literal["executed", "unchanged", "rejected", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """What became of a command; a duplicate of the command gets the same result.

    One that failed may be handled when it comes again.

    Attributes:
        status: "executed": its events are stored. "unchanged": it had nothing to change.
            "rejected": a business rule said no. "failed": it could not be handled, and was parked.
        aggregate_id: which aggregate it was for.
        command_id: its id; empty when the command could not even be read.
        version: the aggregate's version after it, where that is known.
        value: what the handler handed to `set_result`, decoded from JSON.
        error: for a machine: a domain error's code or class name, or why it failed.
        sentence: for a person.
        place: queue and offset of what it did in the event topic, where that was published; of a
            duplicate the place of the newest copy, and the only part that differs.
    """

    status: Status
    aggregate_id: str
    command_id: str
    version: int | None = None
    value: Any = None
    error: str = ""
    sentence: str = ""
    place: tuple[int, int] | None = field(default=None, compare=False)

    @property
    def ok(self) -> bool:
        """Whether the command was executed or had nothing to change."""
        return self.status in {"executed", "unchanged"}

    def raise_for_rejection(self) -> None:
        """Does nothing if the command was executed or had nothing to change.

        Raises:
            DomainError: it was rejected; the error's `code` is the result's `error`.
            HeadraceError: it failed.
        """
        if self.ok:
            return
        if self.status == "failed":
            raise HeadraceError(f"command {self.command_id} failed: {self.sentence}")
        rejection = DomainError(self.sentence)
        rejection.code = self.error
        raise rejection


class WatchedResult(CommandResult):
    """The result of a command that was not done, which warns if it goes without being looked at.

    Made in asyncio's debug mode only.
    """

    @classmethod
    def of(cls, result: CommandResult, command_name: str, *, depth: int) -> "WatchedResult":
        """Returns the result as one that warns, naming a line of the calls that led here.

        Args:
            result: the result.
            command_name: of its command.
            depth: which of the calls: 1 is the caller.
        """
        watched = cls(**{each.name: getattr(result, each.name) for each in fields(result)})
        watched.__dict__["_unseen"] = (command_name, extract_stack(limit=depth + 1)[0])
        return watched

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if not name.startswith("_"):
            super().__getattribute__("__dict__").pop("_unseen", None)
        return value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CommandResult) and _plain(self) == _plain(other)

    __hash__ = CommandResult.__hash__

    def __repr__(self) -> str:
        return repr(_plain(self))

    def __del__(self) -> None:
        unseen = self.__dict__.pop("_unseen", None)
        if unseen is not None:
            name, place = unseen
            sentence = (
                f"{name} was {self.status} ({self.sentence}), and nothing looks at its result: look at"
                " `ok`, or call `raise_for_rejection()`"
            )
            warnings.warn_explicit(sentence, RuntimeWarning, place.filename, place.lineno or 0)


def _plain(result: CommandResult) -> CommandResult:
    return CommandResult(**{each.name: getattr(result, each.name) for each in fields(result)})


class Reply(msgspec.Struct, kw_only=True):
    """A result before it is sent; its value is still JSON. Costs a tenth of a `CommandResult`."""

    status: Status
    aggregate_id: str
    command_id: str
    version: int | None = None
    value: msgspec.Raw = _NULL
    error: str = ""
    sentence: str = ""
    place: tuple[int, int] | None = None


decode_reply = msgspec.json.Decoder(CommandResult).decode
_encode_reply = msgspec.json.Encoder().encode


def encode_reply(result: CommandResult | Reply, *, value_json: str | None = None) -> bytes:
    """Encodes a result as a reply; `value_json` stands in for its value, as stored."""
    if value_json is not None:
        value = msgspec.Raw(value_json.encode())
    elif isinstance(result, Reply):
        value = result.value
    else:
        value = msgspec.Raw(msgspec.json.encode(result.value))
    return _encode_reply(
        Reply(
            status=result.status,
            aggregate_id=result.aggregate_id,
            command_id=result.command_id,
            version=result.version,
            value=value,
            error=result.error,
            sentence=result.sentence,
            place=result.place,
        )
    )
