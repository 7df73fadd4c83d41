"""
What a verb is: a name as on the command line, its fields, what it does, and what that changes.

    headrace group reset  ─  POST /api/group/reset  ─  the form on the page of a group

Used by the verbs and by what offers them. Pure: only `run` and `look_ahead` wait.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pydantic import SecretStr

from headrace.console.problems import Mistake
from headrace.figures.words import time_ms
from headrace_mq.admin.client import AdminClient

__all__ = ["Consequence", "Given", "Tell", "Verb", "VerbField", "values_of"]

Given = Mapping[str, Any]
Tell = Callable[[str], None]
Kind = Literal["text", "body", "number", "time", "flag", "numbers", "texts", "secret"]
_REQUIRED: Final = object()
# A name of a topic or group is far shorter; a list of topics fits.
_TEXT_CHARACTERS_MAX: Final = 1_000
_TRUE, _FALSE = {"1", "true", "on", "yes"}, {"", "0", "false", "off", "no"}
# Brokers and databases have 64 bits for a number.
_NUMBER_MAX: Final = 2**63 - 1
# As many as that has; a longer text would be costly to turn into a number.
_DIGITS_MAX: Final = 19


@dataclass(frozen=True)
class VerbField:
    """A value that a verb takes.

    Attributes:
        name: as in forms and JSON.
        kind: how it is read: `numbers` and `texts` have commas between; a `body` is a text of any length, as it came.
        default: without it the field is required.
        choices: the words that are allowed; none: any.
    """

    name: str
    kind: Kind = "text"
    default: Any = _REQUIRED
    choices: tuple[str, ...] = ()

    def read(self, value: Any) -> Any:
        """Returns a value of a form or of JSON in the field's type.

        Raises:
            Mistake: it does not fit.
        """
        if self.kind == "body" and isinstance(value, str):
            return value
        if value is None or value == "" or value == []:
            if self.default is _REQUIRED:
                raise Mistake(f"{self.name} is missing; write it")
            return self.default
        if self.kind == "secret":
            return SecretStr(str(value))
        parts = value if isinstance(value, list) else str(value).split(",")
        if self.kind == "numbers":
            return [self._number(each) for each in parts]
        if self.kind == "texts":
            return [self._text(each) for each in parts]
        if self.kind == "number":
            return self._number(value)
        if self.kind == "flag":
            return self._flag(value)
        text = self._text(value)
        if self.kind == "time":
            try:
                return time_ms(text)
            except ValueError as error:
                raise Mistake(f"{self.name}: {error}") from error
        if self.choices and text not in self.choices:
            raise Mistake(f"{self.name} is one of {', '.join(self.choices)}, not {text!r}")
        return text

    def _text(self, value: Any) -> str:
        text = str(value).strip()
        if isinstance(value, dict | list) or len(text) > _TEXT_CHARACTERS_MAX:
            raise Mistake(f"{self.name} is a text of at most {_TEXT_CHARACTERS_MAX} characters")
        return text

    def _number(self, value: Any) -> int:
        text = str(value).strip()
        digits = text.removeprefix("-")
        if (
            isinstance(value, bool)
            or not (digits.isascii() and digits.isdigit())
            or len(digits) > _DIGITS_MAX
        ):
            raise Mistake(f"{self.name} is a whole number, not {text[:40]!r}")
        if abs(number := int(text)) > _NUMBER_MAX:
            raise Mistake(f"{self.name} is a whole number up to {_NUMBER_MAX:,}, not {text!r}")
        return number

    def _flag(self, value: Any) -> bool:
        word = str(value).lower()
        if word not in _TRUE | _FALSE:
            raise Mistake(f"{self.name} is true or false, not {word[:40]!r}")
        return word in _TRUE


@dataclass(frozen=True)
class Consequence:
    """What a change would do, before it is done.

    Attributes:
        sentences: in words.
        columns, rows: a table of it.
        hindered: why it cannot be done now; empty: it can.
        secrets: names of fields that are asked for with the question, so that no page repeats them.
        confirmed: fields that go with the answer, so that what is done is what was shown.
    """

    sentences: Sequence[str]
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    hindered: str = ""
    secrets: Sequence[str] = ()
    confirmed: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True)
class Verb:
    """Something to ask or to do.

    Attributes:
        name: two words as on the command line.
        run: does it, with a connection and the fields; returns structs, mappings and lists.
        fields: that it takes.
        look_ahead: says what it would change; None: it changes nothing.
        done: what is said after it.
        slow: does the same as `run`, and tells now and then in words how far it is; None: it is quick.
    """

    name: str
    run: Callable[[AdminClient, Given], Awaitable[Any]]
    fields: Sequence[VerbField] = field(default_factory=tuple)
    look_ahead: Callable[[AdminClient, Given], Awaitable[Consequence]] | None = None
    done: Callable[[Given, Any], str] = lambda given, answer: "done"  # noqa: ARG005 - as others have it
    slow: Callable[[AdminClient, Given, Tell], Awaitable[Any]] | None = None

    @property
    def changes(self) -> bool:
        """Whether it changes something."""
        return self.look_ahead is not None

    @property
    def path(self) -> str:
        """Its part of an address."""
        return self.name.replace(" ", "/")


def values_of(verb: Verb, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a verb, read.

    Raises:
        Mistake: one is missing, does not fit, or is unknown.
    """
    known = {each.name for each in verb.fields}
    unknown = sorted(values.keys() - known)
    if unknown:
        raise Mistake(
            f"{verb.name} has no field {unknown[0][:40]!r}; it has {', '.join(sorted(known)) or 'none'}"
        )
    return {each.name: each.read(values.get(each.name)) for each in verb.fields}
