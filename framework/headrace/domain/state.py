"""
The state of an aggregate as JSON and back: what a snapshot holds.

An aggregate class has a form for its state when each of its attributes is annotated in the class:

    class Account(Aggregate):
        balance: int
        seen: set[str]

Used by `aggregates`, which takes snapshots of aggregate classes and starts from them. Pure.
"""

from typing import Any, ClassVar, Final, Generic, TypeVar, get_origin, get_type_hints

import msgspec
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic_core import PydanticSerializationError

from headrace.domain.aggregate import Aggregate

__all__ = ["StateForm"]

A = TypeVar("A", bound=Aggregate)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_NO_STATE: Final = frozenset({"id", "version", "_recorded"})


class StateForm(Generic[A]):
    """How the attributes of one aggregate class are written down.

    Attributes:
        why_not: why the class has no form; empty: it has one.
    """

    def __init__(self, aggregate_type: type[A]) -> None:
        self._type = aggregate_type
        self._attributes: dict[str, TypeAdapter[Any]] = {}
        self.why_not = ""
        try:
            for name, hint in get_type_hints(aggregate_type, include_extras=True).items():
                if get_origin(hint) is not ClassVar and hint is not ClassVar:
                    self._attributes[name] = TypeAdapter(hint)
        except (NameError, TypeError, PydanticSchemaGenerationError, PydanticUserError) as error:
            self.why_not = f"its annotations do not say how to write it: {error}"

    def capture(self, aggregate: A) -> str:
        """Returns the state as JSON.

        Raises:
            ValueError: it could not be restored exactly; says what to change in the class.
        """
        if self.why_not:
            raise ValueError(self.why_not)
        state = _state_of(aggregate)
        if state.keys() != self._attributes.keys():
            odd = ", ".join(sorted(state.keys() ^ self._attributes.keys()))
            raise ValueError(
                f"annotate in the class every attribute that it sets, and set it: {odd}"
            )
        try:
            written = _encode(
                {
                    name: msgspec.Raw(self._attributes[name].dump_json(value, warnings="error"))
                    for name, value in state.items()
                }
            ).decode()
        except (PydanticSerializationError, TypeError) as error:
            raise ValueError(f"a value is not of its annotated type: {error}") from error
        restored = self.restore(aggregate.id, aggregate.version, written)
        # What comes back must be what went in: an annotation such as Any can lose something.
        if restored is None or _state_of(restored) != state:
            raise ValueError("what is written does not come back as it was; annotate exact types")
        return written

    def restore(self, aggregate_id: str, version: int, written: str) -> A | None:
        """Returns an aggregate of a captured state, or None where the class has changed since."""
        try:
            values = _decode(written)
            if values.keys() != self._attributes.keys():
                return None
            state = {
                name: self._attributes[name].validate_json(bytes(value), strict=True)
                for name, value in values.items()
            }
        except (msgspec.MsgspecError, ValidationError):
            return None
        aggregate = self._type(aggregate_id)
        for name, value in state.items():
            setattr(aggregate, name, value)
        aggregate.version = version
        return aggregate


def _state_of(aggregate: Aggregate) -> dict[str, Any]:
    return {name: value for name, value in vars(aggregate).items() if name not in _NO_STATE}
