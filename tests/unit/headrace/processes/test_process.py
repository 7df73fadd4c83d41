"""What a process is: keys, states made of events alone, ids derived from causes."""

from collections.abc import Iterable
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from headrace.domain.message import AggregateId, Command, DomainEvent, EventContext
from headrace.domain.stream import EventStream, Rejection
from headrace.errors import DefinitionError, SerializationError
from headrace.processes.process import Compensate, End, Process, Progress, Undo
from headrace.processes.process_manager import Later


class Opened(DomainEvent):
    pass


class Grown(DomainEvent):
    plant: str
    cm: int


class Water(Command):
    garden_id: AggregateId
    litres: int = 1


class Garden(BaseModel):
    grown: tuple[int, ...] = ()


AT = datetime(2026, 1, 1, tzinfo=UTC)


def stream(aggregate_id: str, version: int, *events: DomainEvent) -> EventStream:
    return EventStream(
        aggregate_type="Garden",
        aggregate_id=aggregate_id,
        version=version,
        command_id=f"c-{version}",
        correlation_id="first",
        recorded_at=AT,
        events=events,
        items={"who": "ann"},
    )


def make_gardens() -> Process[Garden]:
    gardens = Process("gardens", state=Garden)

    @gardens.on
    def opened(state: Garden | None, event: Opened, context: EventContext) -> Iterable[Any]:
        return [Garden()]

    @gardens.on(key="plant")
    def grown(state: Garden, event: Grown, context: EventContext) -> Iterable[Any]:
        yield Garden(grown=(*state.grown, event.cm))
        yield Undo(Water(garden_id="g", litres=event.cm))
        if event.cm == 3:
            yield Compensate()
        if event.cm == 4:
            yield End()
        yield Water(garden_id="g", litres=100 + event.cm)

    return gardens


def test_an_event_without_an_instance_is_ignored_unless_it_begins_one() -> None:
    gardens = make_gardens()
    assert gardens.react(None, "g", stream("x", 1, Grown(plant="g", cm=1))) is None
    assert gardens.react(None, "g", stream("g", 1, Opened())) == (Progress(state=Garden()), [])


def test_a_stream_concerns_the_instances_of_its_events_keys() -> None:
    gardens = make_gardens()
    both = stream("g", 1, Opened(), Grown(plant="rose", cm=1), Grown(plant="g", cm=2))
    assert {key: len(events) for key, events in gardens.keys_of(both).items()} == {
        "g": 2,
        "rose": 1,
    }
    done = gardens.react(None, "g", both)
    assert done is not None
    assert done[0].state == Garden(grown=(2,))


def test_commands_get_ids_from_instance_and_cause_and_inherit_the_causes_items() -> None:
    gardens = make_gardens()
    before = Progress(state=Garden())
    first, again, other = (
        gardens.react(before, key, stream("g", 2, Grown(plant=key, cm=1)))
        for key in ("g", "g", "h")
    )
    assert first is not None
    assert again is not None
    assert other is not None
    assert [one.command_id for one in first[1]] == [one.command_id for one in again[1]]
    assert first[1][0].command_id != other[1][0].command_id
    assert (first[1][0].correlation_id, first[1][0].items) == ("first", {"who": "ann"})


def test_compensate_sends_kept_commands_newest_first_and_forgets_them() -> None:
    gardens = make_gardens()
    progress: Progress[Garden] | None = Progress(state=Garden())
    sent = []
    for version, cm in enumerate((1, 2, 3), start=1):
        done = gardens.react(progress, "g", stream("g", version, Grown(plant="g", cm=cm)))
        assert done is not None
        progress, envelopes = done
        sent += [one.command.model_dump()["litres"] for one in envelopes]
    assert sent == [101, 102, 3, 2, 1, 103]
    assert progress is not None
    assert progress.undo == ()


def test_an_ended_instance_ignores_later_events_of_the_same_stream_too() -> None:
    gardens = make_gardens()
    last = stream("g", 1, Grown(plant="g", cm=4), Grown(plant="g", cm=5))
    done = gardens.react(Progress(state=Garden()), "g", last)
    assert done is not None
    progress, envelopes = done
    assert (progress.ended, progress.state) == (True, Garden(grown=(4,)))
    assert len(envelopes) == 1


def test_a_timeout_keeps_its_moment() -> None:
    gardens = Process("gardens", state=Garden)

    @gardens.on
    def opened(state: Garden | None, event: Opened, context: EventContext) -> Iterable[Any]:
        return [Garden(), Later(Water(garden_id="g"), at=context.recorded_at)]

    done = gardens.react(None, "g", stream("g", 1, Opened()))
    assert done is not None
    assert done[1][0].due == AT


def test_a_rejection_goes_to_the_handler_of_its_command() -> None:
    gardens = make_gardens()

    @gardens.on_rejection
    def dry(state: Garden, command: Water, rejection: Rejection) -> Iterable[Any]:
        return [Garden(grown=(command.litres,)), End()]

    refused = EventStream(
        aggregate_type="Garden",
        aggregate_id="g",
        version=None,
        command_id="c",
        correlation_id="c",
        recorded_at=AT,
        rejection=Rejection(
            error="Dry",
            sentence="no water",
            command_name="Water",
            command_version=1,
            command_data={"garden_id": "g", "litres": 7},
        ),
    )
    assert gardens.react(Progress(state=Garden()), "g", refused) == (
        Progress(state=Garden(grown=(7,)), ended=True),
        [],
    )


@given(st.lists(st.integers(1, 5), max_size=12))
def test_a_rebuilt_state_equals_the_state_before(sizes: list[int]) -> None:
    gardens = make_gardens()
    streams = [stream("g", 1, Opened())] + [
        stream("g", version, Grown(plant="g", cm=cm)) for version, cm in enumerate(sizes, start=2)
    ]
    progress: Progress[Garden] | None = None
    for one in streams:
        done = gardens.react(progress, "g", one)
        assert done is not None
        progress = done[0]
    assert gardens.refold("g", streams) == progress


def test_a_process_without_a_first_state_is_refused() -> None:
    gardens = Process("gardens", state=Garden)

    @gardens.on
    def opened(state: Garden | None, event: Opened, context: EventContext) -> Iterable[Any]:
        yield Water(garden_id="g")

    with pytest.raises(DefinitionError, match="yield a Garden first"):
        gardens.react(None, "g", stream("g", 1, Opened()))


def test_a_handler_that_yields_an_unknown_value_is_refused() -> None:
    gardens = Process("gardens", state=Garden)

    @gardens.on
    def opened(state: Garden | None, event: Opened, context: EventContext) -> Iterable[Any]:
        return [{"grown": 1}]

    with pytest.raises(DefinitionError, match=r"not \{'grown': 1\}"):
        gardens.react(None, "g", stream("g", 1, Opened()))


def test_handlers_without_the_right_annotations_are_refused() -> None:
    gardens = make_gardens()
    with pytest.raises(DefinitionError, match="annotate the first as Garden"):

        @gardens.on
        def untyped(event: Opened, context: EventContext) -> Iterable[Any]: ...

    with pytest.raises(DefinitionError, match="annotate the first as Garden"):

        @gardens.on_rejection
        def wrong(state: Garden, event: Opened, context: EventContext) -> Iterable[Any]: ...

    with pytest.raises(DefinitionError, match="asks is async; write `def`"):

        @gardens.on
        async def asks(state: Garden, event: Opened, context: EventContext) -> Any: ...

    with pytest.raises(DefinitionError, match="handles Opened twice"):

        @gardens.on
        def twice(state: Garden, event: Opened, context: EventContext) -> Iterable[Any]: ...

    with pytest.raises(DefinitionError, match="Opened has no field 'plant'"):

        @Process("others", state=Garden).on(key="plant")
        def nameless(state: Garden, event: Opened, context: EventContext) -> Iterable[Any]: ...


def test_a_key_that_is_no_id_is_refused() -> None:
    gardens = make_gardens()
    with pytest.raises(DefinitionError, match="a key has 1 to 255 characters"):
        gardens.keys_of(stream("g", 1, Grown(plant="", cm=1)))


class Moved(DomainEvent):
    plant: str


class Carried(Moved):
    by: str = "hand"


class Blown(Moved):
    pass


def make_wanderers() -> Process[Garden]:
    wanderers = Process("wanderers", state=Garden)

    @wanderers.on
    def opened(state: Garden | None, event: Opened, context: EventContext) -> Iterable[Any]:
        return [Garden()]

    @wanderers.on(key="plant")
    def moved(state: Garden, event: Moved, context: EventContext) -> Iterable[Any]:
        return [Garden(grown=(*state.grown, 1))]

    @wanderers.on(key="plant")
    def blown(state: Garden, event: Blown | Grown, context: EventContext) -> Iterable[Any]:
        return [Garden(grown=(*state.grown, 2))]

    return wanderers


def test_a_handler_of_a_base_class_gets_subclasses_without_a_handler() -> None:
    moving = stream("g", 2, Moved(plant="g"), Carried(plant="g"), Blown(plant="g"))
    wanderers = make_wanderers()
    assert wanderers.event_types == {Opened, Moved, Blown, Grown}
    done = wanderers.react(Progress(state=Garden()), "g", moving)
    assert done is not None
    assert done[0].state == Garden(grown=(1, 1, 2))


def test_one_handler_serves_several_event_types_each_of_which_has_its_key() -> None:
    wanderers = make_wanderers()
    done = wanderers.react(Progress(state=Garden()), "g", stream("g", 2, Grown(plant="g", cm=9)))
    assert done is not None
    assert done[0].state == Garden(grown=(2,))
    with pytest.raises(DefinitionError, match="handles Blown twice"):

        @wanderers.on
        def again(state: Garden, event: Blown, context: EventContext) -> Iterable[Any]: ...

    with pytest.raises(DefinitionError, match="Opened has no field 'plant'"):

        @Process("others", state=Garden).on(key="plant")
        def one(state: Garden, event: Blown | Opened, context: EventContext) -> Iterable[Any]: ...


class Secretive(BaseModel):
    token: SecretStr


class Forgetful(BaseModel):
    left_out: int = Field(default=0, exclude=True)


class Renamed(BaseModel):
    name: str = Field(alias="other")


@pytest.mark.parametrize(
    ("state", "sentence"),
    [(Secretive, "token is a secret"), (Forgetful, "left_out is ex"), (Renamed, "has an alias")],
)
def test_a_state_that_storing_would_change_is_refused_when_the_process_is_defined(
    state: Any, sentence: str
) -> None:
    with pytest.raises(DefinitionError, match=sentence):
        Process("odd", state=state)


class Vague(BaseModel):
    model_config = ConfigDict(strict=True)

    on: date = date(2026, 1, 1)
    share: float | None = None
    what: Any = None


class Vaguer(Vague):
    pass


def reacting_with(state: BaseModel) -> Any:
    process = Process("vague", state=Vague)

    @process.on
    def opened(before: Vague | None, event: Opened, context: EventContext) -> Iterable[Any]:
        return [state]

    return process.react(None, "g", stream("g", 1, Opened()))


def test_values_of_a_state_that_storing_would_change_are_refused() -> None:
    assert reacting_with(Vague(share=0.5, what="text"))[0].state.share == 0.5
    for odd, sentence in (
        (Vague(share=float("nan")), "share holds a value of float"),
        (Vague(what=date(2026, 1, 1)), "what holds a value of date"),
        (Vaguer(), "a Vaguer would come back as a Vague"),
    ):
        with pytest.raises(SerializationError, match=sentence):
            reacting_with(odd)
