"""What a snapshot holds comes back exactly, or is not taken."""

from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, ClassVar
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from headrace.domain.aggregate import Aggregate
from headrace.domain.state import StateForm


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Line(BaseModel):
    article: str
    price: Decimal


class Basket(Aggregate):
    limit: ClassVar[int] = 9
    lines: dict[int, Line]
    seen: set[str]
    _colour: Colour | None
    since: datetime
    pair: tuple[int, str]
    free: bool

    def initial_state(self) -> None:
        self.lines = {}
        self.seen = set()
        self._colour = None
        self.since = datetime(2026, 1, 1, tzinfo=UTC)
        self.pair = (0, "")
        self.free = False


class BigBasket(Basket):
    owner: UUID | date | str

    def initial_state(self) -> None:
        super().initial_state()
        self.owner = ""


LINES = st.builds(Line, article=st.text(), price=st.decimals(allow_nan=False, allow_infinity=False))


@given(
    lines=st.dictionaries(st.integers(), LINES, max_size=3),
    seen=st.sets(st.text(), max_size=3),
    colour=st.sampled_from([*Colour, None]),
    since=st.datetimes(timezones=st.just(UTC)),
    pair=st.tuples(st.integers(), st.text()),
    owner=st.uuids() | st.dates() | st.text(),
)
def test_what_is_captured_comes_back_as_it_was(lines, seen, colour, since, pair, owner):
    basket = BigBasket("b-1")
    basket.version = 5
    basket.lines, basket.seen, basket._colour = lines, seen, colour
    basket.since, basket.pair, basket.owner = since, pair, owner
    form = StateForm(BigBasket)
    try:
        written = form.capture(basket)
    except ValueError:
        # A text that looks like a date, or that JSON has no form for, is not mistaken for another.
        assert isinstance(owner, str) or any(
            "\ud800" <= character <= "\udfff"
            for text in [*seen, pair[1], *(line.article for line in lines.values())]
            for character in text
        )
        return
    restored = form.restore("b-1", 5, written)
    assert restored is not None
    assert vars(restored) == vars(basket)
    assert type(restored) is BigBasket


def test_an_attribute_that_is_not_annotated_is_named():
    class Loose(Aggregate):
        balance: int

        def initial_state(self) -> None:
            self.balance = 0
            self.mood = "good"

    with pytest.raises(ValueError, match=r"annotate in the class every attribute .*: mood"):
        StateForm(Loose).capture(Loose("a"))


def test_an_attribute_that_is_not_set_is_named():
    class Unset(Aggregate):
        balance: int

    with pytest.raises(ValueError, match=": balance"):
        StateForm(Unset).capture(Unset("a"))


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(int, "five"), (Any, Decimal("1.5")), (float, float("nan")), (list[int], [object()])],
)
def test_a_value_that_would_not_come_back_is_not_captured(annotation, value):
    class Odd(Aggregate):
        __annotations__ = {"value": annotation}

    odd = Odd("a")
    odd.value = value
    with pytest.raises(ValueError, match=r"a value is not|does not come back"):
        StateForm(Odd).capture(odd)


class _Opaque:
    pass


@pytest.mark.parametrize("annotation", [_Opaque, "NoSuchName"])
def test_annotations_that_say_nothing_are_told_from_the_start(annotation):
    class Strange(Aggregate):
        __annotations__ = {"value": annotation}

    form = StateForm(Strange)
    assert "do not say how to write it" in form.why_not
    with pytest.raises(ValueError, match="do not say how"):
        form.capture(Strange("a"))


@pytest.mark.parametrize("written", ["[]", "{}", "{", '{"lines":{}}'])
def test_what_does_not_fit_the_class_is_none(written):
    assert StateForm(Basket).restore("a", 1, written) is None
