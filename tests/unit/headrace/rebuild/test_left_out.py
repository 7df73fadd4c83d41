"""An aggregate with a stream that does not decode is left out from there on; others are not."""

from typing import Any

import pytest

from headrace.errors import SerializationError
from headrace.rebuild import left_out as module
from headrace.rebuild.decode import Decoder, Undecodable
from headrace.rebuild.event_topic import Portion
from headrace.rebuild.left_out import LeftOut

QUEUE = ("ledger.events", 0)


@pytest.fixture
def decoder(ledger: Any) -> Decoder:
    return Decoder(ledger.serializer, ledger.accounts.reacts_to)


def portion(ledger: Any, *streams: tuple[str, int], broken: int) -> Portion:
    """Streams from offset 10 on, of which that of one offset has an event without its fields."""
    bodies = []
    for offset, (key, version) in enumerate(streams, start=10):
        one = ledger.stream(key, version, ledger.Booked(partner="p", amount=version))
        body = ledger.serializer.encode_stream(one)
        bodies.append(body.replace(b'"amount"', b'"lost"') if offset == broken else body)
    return Portion(range(10, 10 + len(streams)), bodies)


def decoded(decoder: Decoder, some: Portion, left_out: LeftOut) -> list[tuple[int, str, int]]:
    found = left_out.decode(decoder, QUEUE, some, 0)
    assert found.end == 10 + len(some.bodies)
    assert len(found.counts) == len(found.told)
    return [
        (offset, key, version)
        for offset, (key, version, _) in zip(found.offsets, found.told, strict=True)
    ]


def test_what_came_before_stays_and_what_comes_after_is_left_out(
    decoder: Decoder, ledger: Any
) -> None:
    left_out = LeftOut()
    some = portion(ledger, ("a", 1), ("b", 1), ("a", 2), ("a", 3), ("b", 2), broken=12)
    assert decoded(decoder, some, left_out) == [(10, "a", 1), (11, "b", 1), (14, "b", 2)]
    assert left_out.aggregates == {"a": 12}
    later = Portion(range(20, 22), portion(ledger, ("a", 4), ("b", 3), broken=0).bodies)
    found = left_out.without(decoder.decode(QUEUE, later, 0))
    assert [key for key, _, _ in found.told] == ["b"]


def test_without_one_nothing_is_copied(decoder: Decoder, ledger: Any) -> None:
    whole = decoder.decode(QUEUE, portion(ledger, ("a", 1), broken=0), 0)
    assert LeftOut().without(whole) is whole


def test_what_names_no_aggregate_is_not_gone_around(ledger: Any) -> None:
    error = Undecodable(QUEUE, 10, SerializationError("no"))
    assert LeftOut().leave_out(QUEUE, Portion([10], [b"no JSON"]), error) is None


def test_too_many_are_no_accident(
    decoder: Decoder, ledger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEFT_OUT_MAX", 1)
    left_out = LeftOut()
    decoded(decoder, portion(ledger, ("a", 1), broken=10), left_out)
    other = portion(ledger, ("b", 1), broken=10)
    error = Undecodable(QUEUE, 10, SerializationError("no"))
    assert left_out.leave_out(QUEUE, other, error) is None
