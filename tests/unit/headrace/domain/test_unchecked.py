"""What is made of values as they are is what the model makes of them."""

import copy
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Annotated, Any

import msgspec
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
    count: Annotated[int, Field(gt=0, le=9)]
    share: Annotated[float, Field(ge=0)] | None
    name: str = Field(min_length=1, max_length=3)


def test_bounds_are_checked_without_the_model() -> None:
    fields = plain_fields(Bounded)
    assert fields is not None
    data = msgspec.defstruct("Data", list(fields.items()))
    good = {"count": 9, "share": 0.0, "name": "äöü"}
    assert msgspec.convert(good, data) == data(**good)
    for odd in ({"count": 0}, {"count": 10}, {"share": -1.0}, {"name": ""}, {"name": "long"}):
        for takes in (partial(msgspec.convert, type=data), Bounded.model_validate):
            with pytest.raises(ValueError, match=r"Expected|validation error"):
                takes(good | odd)


class Patterned(DomainEvent):
    name: str = Field(pattern="^a")


class TwiceBounded(DomainEvent):
    count: int = Field(ge=1, gt=1)


class FarBounded(DomainEvent):
    count: int = Field(ge=1 << 70)


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
        Patterned, TwiceBounded, FarBounded, Dated, Exact, Nested, Renamed, Made, Stripping, Ruled, Finished,
        Started, Secret,
    ],
)  # fmt: skip
def test_what_has_rules_of_its_own_goes_through_the_model(event_type: type[DomainEvent]) -> None:
    assert plain_fields(event_type) is None
