"""
Value objects: they have no identity, and two are equal when their parts are.

Used by applications, which subclass it for parts of messages, states and ids. Pure.
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
