"""
Value objects: what has no identity and is equal when its parts are.

Sits between: user code, which subclasses, and the messages, states and ids that hold values. Pure.
"""

from pydantic import BaseModel, ConfigDict

__all__ = ["ValueObject"]


class ValueObject(BaseModel):
    """A frozen value made of named parts; for fields of messages, attributes of aggregates, ids.

    class Money(ValueObject):
        cents: int
        currency: str
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
