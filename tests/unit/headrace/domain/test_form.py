"""What a message holds comes back, or the class or the message is refused."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Secret,
    SecretBytes,
    SecretStr,
    Strict,
    StrictInt,
    TypeAdapter,
    computed_field,
    create_model,
    field_serializer,
)

from headrace import AggregateId, ApplicationMessage, Command, DomainEvent
from headrace.domain.form import EXACT, difference
from headrace.domain.registry import Registry
from headrace.errors import DefinitionError, SerializationError


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Money(BaseModel):
    amount: Decimal
    currency: str = "EUR"


def defined(annotation: Any, default: Any = ...) -> type[DomainEvent]:
    return create_model("Happened", __base__=DomainEvent, value=(annotation, default))


def check(event: DomainEvent) -> None:
    type(event).complete_form().check(event, event.model_dump_json(warnings=False).encode())


EXACT_TYPES: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(),
    int: st.integers(),
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    float | None: st.none() | st.floats(allow_nan=False, allow_infinity=False),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False),
    # Offsets of a zone before there were any had seconds, which ISO 8601 does not write.
    datetime: st.datetimes() | st.datetimes(timezones=st.just(UTC)),
    date: st.dates(),
    time: st.times(),
    timedelta: st.timedeltas(),
    UUID: st.uuids(),
    bytes: st.text().map(str.encode),
    Colour: st.sampled_from(Colour),
    Literal["a", 1, None]: st.sampled_from(["a", 1, None]),
    list[int]: st.lists(st.integers()),
    set[str]: st.sets(st.text()),
    tuple[int, ...]: st.lists(st.integers()).map(tuple),
    tuple[int, date]: st.tuples(st.integers(), st.dates()),
    dict[str, list[date]]: st.dictionaries(st.text(), st.lists(st.dates())),
    dict[int, bool]: st.dictionaries(st.integers(), st.booleans()),
    Annotated[int, Field(ge=3)]: st.integers(min_value=3),
    StrictInt: st.integers(),
}


@pytest.mark.parametrize("annotation", EXACT_TYPES, ids=str)
def test_values_of_exact_types_come_back_without_a_look_at_them(annotation: Any) -> None:
    event_type = defined(annotation)
    assert event_type.message_form is EXACT

    @given(EXACT_TYPES[annotation])
    def comes_back(value: Any) -> None:
        event = event_type(value=value)
        again = event_type.model_validate_json(event.model_dump_json())
        assert again == event
        assert type(again.value) is type(event.value)  # type: ignore[attr-defined]  # made above

    comes_back()


class Odd(DomainEvent):
    value: Any
    other: Decimal | str = ""
    third: tuple[Money, ...] = ()


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        (
            Odd(value=date(2026, 1, 1)),
            "value holds a value of date, which comes back as one of str",
        ),
        (Odd(value=[{"a": (1, 2)}]), "value.0.a holds a value of tuple, .* one of list"),
        (Odd(value={"a": float("nan")}), "value.a holds a value of float, .* of NoneType"),
        (Odd(value={1: 2}), "value holds keys that do not come back as they are"),
        (Odd(value=None, other="1.50"), ""),
        (Odd(value=[1, "a", {"b": None}]), ""),
        (defined(set[Any])(value={1, "a"}), ""),
    ],
)
def test_a_value_that_would_come_back_as_another_one_is_refused(
    event: DomainEvent, sentence: str
) -> None:
    if not sentence:
        check(event)
        return
    with pytest.raises(SerializationError, match=f"field {sentence}; annotate the exact type"):
        check(event)


def _behind_a_letter(value: Any) -> int:
    if not isinstance(value, str):
        raise ValueError("begin with a letter")  # noqa: TRY004 - what a validator raises
    return int(value[1:])


def test_no_value_is_in_the_sentence() -> None:
    with pytest.raises(SerializationError) as raised:
        check(Odd(value={"hunter2"}))
    assert "hunter2" not in str(raised.value)
    event = defined(Annotated[int, BeforeValidator(_behind_a_letter)])
    with pytest.raises(SerializationError, match=r"^Happened could not be read again") as raised:
        check(event(value="x4711"))
    assert "4711" not in str(raised.value)


def test_a_subclass_in_the_place_of_its_base_is_refused_and_costs_nothing_before_there_is_one() -> (
    None
):
    class Price(BaseModel):
        amount: int

    event_type = defined(Price | None)
    form = event_type.complete_form()
    form.check(event_type(value=Price(amount=1)), b"not looked at")

    class Discounted(Price):
        percent: int = 10

    check(event_type(value=Price(amount=1)))
    with pytest.raises(SerializationError, match=r"value holds a value of Discounted, .* of Price"):
        check(event_type(value=Discounted(amount=1)))


def test_what_is_no_number_is_refused_when_the_message_is_made() -> None:
    for value in ("nan", "inf", "-inf"):
        for annotation in (float, float | None, list[float]):
            wrapped: Any = [float(value)] if annotation == list[float] else float(value)
            with pytest.raises(ValueError, match="Input should be a finite number"):
                defined(annotation)(value=wrapped)


def test_what_is_no_number_within_a_model_of_ones_own_is_refused_when_it_is_encoded() -> None:
    class Place(BaseModel):
        height: float | None

    event_type = defined(Place)
    check(event_type(value=Place(height=1.5)))
    with pytest.raises(SerializationError, match=r"field value\.height holds"):
        check(event_type(value=Place(height=float("nan"))))


def test_defaults_that_their_types_would_not_make_are_looked_at() -> None:
    assert defined(int, 3).message_form is EXACT
    assert defined(str | None, None).message_form is EXACT
    assert defined(list[int], []).message_form is EXACT
    assert defined(Colour, Colour.RED).message_form is EXACT
    for annotation, default in ((date, "soon"), (int, None), (float, float("nan"))):
        event_type = defined(annotation, default)
        with pytest.raises(SerializationError, match="value"):
            check(event_type())


class Aliased(BaseModel):
    number: int = Field(alias="n")


class Strictly(BaseModel):
    model_config = ConfigDict(strict=True)
    at: date


class Computing(BaseModel):
    model_config = ConfigDict(extra="forbid")
    number: int

    @computed_field  # type: ignore[prop-decorator]  # as pydantic's documentation has it
    @property
    def twice(self) -> int:
        return 2 * self.number


def config(**settings: Any) -> Callable[[Any], type[DomainEvent]]:
    def make(annotation: Any) -> type[DomainEvent]:
        class Base(DomainEvent):
            model_config = ConfigDict(**settings)

        return create_model("Happened", __base__=Base, value=(annotation, ...))

    return make


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: defined(Annotated[int, Field(alias="n")]), "field value has an alias"),
        (lambda: config(alias_generator=str.upper)(int), "field value has an alias"),
        (lambda: defined(Aliased), "field value.number has an alias"),
        (lambda: defined(list[Aliased | None]), "field value.number has an alias"),
        (lambda: defined(Annotated[int, Field(exclude=True)]), "field value is excluded"),
        (lambda: config(strict=True)(datetime), "field value is strict, and a datetime"),
        (lambda: config(strict=True)(tuple[int, ...]), "field value is strict, and a tuple"),
        (lambda: defined(Annotated[date, Strict()]), "field value is strict, and a date"),
        (lambda: defined(Strictly), "field value.at is strict"),
        (lambda: defined(SecretStr), "field value is a secret"),
        (lambda: defined(dict[str, SecretBytes | None]), "field value is a secret"),
        (lambda: defined(Secret[int]), "field value is a secret"),
        (lambda: defined(Computing), "value.twice is a computed field"),
    ],
)
def test_a_class_whose_messages_never_come_back_is_refused_by_name_and_field(
    make: Callable[[], type[DomainEvent]], sentence: str
) -> None:
    with pytest.raises(DefinitionError, match=rf"^Happened: {sentence}.*(;|,) "):
        make()


@pytest.mark.parametrize("base", [DomainEvent, ApplicationMessage])
def test_a_computed_field_of_a_message_is_refused(base: type[BaseModel]) -> None:
    with pytest.raises(DefinitionError, match="Sized: twice is a computed field"):

        class Sized(base):  # type: ignore[valid-type,misc]  # one of two
            @computed_field  # type: ignore[prop-decorator]  # as pydantic's documentation has it
            @property
            def twice(self) -> int:
                return 2


def test_a_command_is_held_to_the_same() -> None:
    with pytest.raises(DefinitionError, match="Pay: field secret is a secret"):

        class Pay(Command):
            account_id: AggregateId
            secret: SecretStr


def test_an_alias_that_is_not_needed_for_reading_is_fine() -> None:
    event_type = config(validate_by_name=True)(Annotated[int, Field(alias="n")])
    check(event_type(n=1))
    check(defined(Annotated[int, Field(serialization_alias="n")])(value=1))


def test_strict_fields_that_json_has_types_for_are_fine() -> None:
    event_type = config(strict=True)(dict[str, list[int | str | None]])
    check(event_type(value={"a": [1, "b", None]}))


def test_what_is_written_in_a_way_of_its_own_is_compared() -> None:
    class Written(DomainEvent):
        number: int

        @field_serializer("number")
        def _text(self, number: int) -> str:
            return f"{number:03}" if number < 1_000 else "many"

    check(Written(number=5))
    with pytest.raises(SerializationError, match=r"could not be read again.*number"):
        check(Written(number=1_000))


def test_a_type_that_is_defined_later_is_looked_at_when_the_class_is_registered() -> None:
    class Early(DomainEvent):
        later: "Later"

    assert Early.message_form is None
    registry: Registry[DomainEvent] = Registry("event")
    with pytest.raises(DefinitionError, match="Early: the type of a field is not defined"):
        registry.add(Early)

    class Later(BaseModel):
        number: int

    Early.model_rebuild()
    registry.add(Early)
    check(Early(later=Later(number=1)))


class Tree(BaseModel):
    branches: list["Tree"] = []


def test_a_type_that_is_made_of_itself_is_no_endless_walk() -> None:
    event_type = defined(Tree)
    check(event_type(value=Tree(branches=[Tree(), Tree()])))
    assert TypeAdapter(event_type).validate_json('{"value": {}}') == event_type(value=Tree())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
)


class Plain:
    def __init__(self, number: int) -> None:
        self.number = number


class Pair(BaseModel):
    left: Any
    right: Any = None


@dataclass
class Point:
    x: int


@given(VALUES)
def test_nothing_is_different_from_itself(value: Any) -> None:
    assert difference(value, value) == ""


@given(VALUES, VALUES)
def test_a_difference_is_symmetric_and_finds_all_that_is_not_equal(one: Any, other: Any) -> None:
    found = difference(Pair(left=one), Pair(left=other))
    assert bool(found) is bool(difference(Pair(left=other), Pair(left=one)))
    if not found:
        assert repr(one) == repr(other) or one == other


@pytest.mark.parametrize(
    ("value", "again", "where"),
    [
        (True, 1, "field left holds a value of bool"),
        (1, 1.0, "field left holds a value of int"),
        (date(2026, 1, 1), "2026-01-01", "field left holds a value of date"),
        ([1, [2]], [1, [3]], "field left.1.0 holds a int"),
        ([1], [1, 2], "field left holds 1 values, of which 2 come back"),
        ({"a": {"b": 1}}, {"a": {"c": 1}}, "field left.a holds keys that do not"),
        (Pair(left=Pair(left=1)), Pair(left=Pair(left=2)), "field left.left.left holds a int"),
        (Plain(1), Plain(2), "field left.number holds a int"),
        (Point(1), Point(2), "field left holds a Point"),
        (Decimal(1), Decimal(2), "field left holds a Decimal"),
    ],
)
def test_the_sentence_says_where(value: Any, again: Any, where: str) -> None:
    assert difference(Pair(left=value), Pair(left=again)).startswith(where)


def test_what_has_no_equality_of_its_own_is_what_it_holds() -> None:
    assert difference(Plain(1), Plain(1)) == ""
