"""Aggregates decide, apply and are brought back."""

import pytest

from headrace.domain.aggregate import Aggregate, applies
from headrace.domain.message import DomainEvent
from headrace.errors import DefinitionError


class Counted(DomainEvent):
    by: int = 1


class Cleared(DomainEvent):
    pass


class Counter(Aggregate):
    def initial_state(self) -> None:
        self.count = 0

    @applies
    def _counted(self, event: Counted) -> None:
        self.count += event.by


class ClearableCounter(Counter, name="clearable", state_version=2):
    @applies
    def _cleared(self, event: Cleared) -> None:
        self.count = 0


def test_recording_applies_at_once_and_keeps_the_event_until_it_is_accepted():
    counter = Counter("n-1")
    counter.record(Counted(by=2))
    counter.record(Counted(by=3))
    assert (counter.count, counter.version) == (5, 0)
    assert counter.recorded == (Counted(by=2), Counted(by=3))
    counter.accept()
    assert (counter.count, counter.version, counter.recorded) == (5, 1, ())


def test_accepting_nothing_is_no_new_version():
    counter = Counter("n-1")
    counter.accept()
    assert counter.version == 0


def test_replaying_brings_back_the_same_state_without_recording():
    counter = Counter("n-1")
    counter.replay(1, [Counted(by=2), Counted(by=3)])
    counter.replay(2, [Counted()])
    assert (counter.count, counter.version, counter.recorded) == (6, 2, ())


@pytest.mark.parametrize("version", [0, 1, 3])
def test_replaying_another_version_than_the_next_is_refused(version):
    counter = Counter("n-1")
    counter.replay(1, [Counted()])
    with pytest.raises(ValueError, match=f"at version 1 and cannot replay version {version}"):
        counter.replay(version, [Counted()])


def test_an_event_without_applier_is_refused_and_not_recorded():
    counter = Counter("n-1")
    with pytest.raises(DefinitionError, match="Counter has no @applies method for Cleared"):
        counter.record(Cleared())
    assert counter.recorded == ()


def test_an_inheriting_aggregate_applies_its_parents_events_too():
    counter = ClearableCounter("n-1")
    counter.record(Counted())
    counter.record(Cleared())
    assert counter.count == 0
    assert ClearableCounter.event_types() == {Counted, Cleared}
    assert Counter.event_types() == {Counted}


def test_an_aggregate_is_named_after_its_class_unless_it_says_otherwise():
    assert (Counter.aggregate_name, Counter.state_version) == ("Counter", 1)
    assert (ClearableCounter.aggregate_name, ClearableCounter.state_version) == ("clearable", 2)


def test_two_appliers_of_one_event_are_refused():
    with pytest.raises(DefinitionError, match="Twice applies Counted twice: in _a and in _b"):

        class Twice(Aggregate):
            @applies
            def _a(self, event: Counted) -> None:
                pass

            @applies
            def _b(self, event: Counted) -> None:
                pass


def test_an_applier_of_something_else_is_refused():
    with pytest.raises(DefinitionError, match=r"Odd\._a: an @applies method takes self and one"):

        class Odd(Aggregate):
            @applies
            def _a(self, event: int) -> None:
                pass


@pytest.mark.parametrize("aggregate_id", ["", "x" * 256])
def test_an_id_that_no_store_could_keep_is_refused(aggregate_id):
    with pytest.raises(ValueError, match="1 to 255 characters"):
        Counter(aggregate_id)


def test_the_repr_of_an_aggregate_is_safe_and_short():
    assert repr(Counter("n-1")) == "<Counter 'n-1' version 0>"


class CountedTwice(Counted):
    """A kind of `Counted` without a method of its own."""


class CountedBack(Counted):
    pass


class BackwardCounter(Counter):
    @applies
    def _counted_back(self, event: CountedBack) -> None:
        self.count -= 1


def test_an_event_is_applied_by_the_method_for_its_nearest_base_class():
    counter = BackwardCounter("n-1")
    counter.record(CountedTwice())
    counter.record(CountedBack())
    counter.record(CountedBack())
    assert counter.count == Counter("n-2").count - 1


def test_an_id_of_any_type_is_text_from_the_start():
    assert Counter(17).id == "17"
    with pytest.raises(ValueError, match="use a frozen type"):
        Counter(["a"])
