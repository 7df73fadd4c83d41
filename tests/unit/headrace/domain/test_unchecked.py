"""What is made of values as they are is what the model makes of them."""

import copy
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator

from headrace import DomainEvent
from headrace.domain.unchecked import make_unchecked, plain_fields


class Plain(DomainEvent):
    name: str
    count: int
    share: float
    done: bool
    note: str | None = None
    times: int = 3


VALUES: dict[str, Any] = {
    "name": "a", "count": 2, "share": 0.5, "done": True, "note": None, "times": 4
}  # fmt: skip


def test_an_unchecked_model_equals_the_checked_one() -> None:
    made, wanted = make_unchecked(Plain, dict(VALUES), set(VALUES)), Plain(**VALUES)
    assert type(made) is Plain
    assert made == wanted
    assert repr(made) == repr(wanted)
    assert made.model_fields_set == wanted.model_fields_set
    assert made.model_dump_json() == wanted.model_dump_json()
    assert hash(made) == hash(wanted)


def test_copies_of_it_leave_the_names_that_it_shares_alone() -> None:
    class Row(BaseModel):
        key: str
        total: int = 0

    names = {"key"}
    made = make_unchecked(Row, {"key": "a", "total": 0}, names)
    assert made.model_copy(update={"total": 5}) == Row(key="a", total=5)
    assert copy.deepcopy(made) == made
    assert names == {"key"}


def test_fields_of_json_types_are_plain_with_and_without_defaults() -> None:
    assert plain_fields(Plain) == {
        "name": str, "count": int, "share": float, "done": bool, "note": str | None, "times": int
    }  # fmt: skip


class Bounded(DomainEvent):
    count: Annotated[int, Field(gt=0)]


class BoundedInside(DomainEvent):
    count: Annotated[int, Field(gt=0)] | None


class Dated(DomainEvent):
    at: datetime


class Exact(DomainEvent):
    amount: Decimal


class Nested(DomainEvent):
    items: list[int]


class Renamed(DomainEvent):
    model_config = ConfigDict(validate_by_name=True)
    count: int = Field(alias="number")


class Made(DomainEvent):
    count: int = Field(default_factory=int)


class Stripping(DomainEvent):
    model_config = ConfigDict(str_strip_whitespace=True)
    name: str


class Ruled(DomainEvent):
    name: str

    @field_validator("name")
    @classmethod
    def _shout(cls, name: str) -> str:
        return name.upper()


class Finished(DomainEvent):
    name: str

    def model_post_init(self, context: Any, /) -> None:
        assert self.name


class Started(DomainEvent):
    name: str

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)


class Secret(DomainEvent):
    name: str
    _seen: bool = PrivateAttr(default=False)


@pytest.mark.parametrize(
    "event_type",
    [
        Bounded, BoundedInside, Dated, Exact, Nested, Renamed, Made, Stripping, Ruled, Finished,
        Started, Secret,
    ],
)  # fmt: skip
def test_what_has_rules_of_its_own_goes_through_the_model(event_type: type[DomainEvent]) -> None:
    assert plain_fields(event_type) is None
