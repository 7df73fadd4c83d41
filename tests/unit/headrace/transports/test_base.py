"""The port's values, and that every adapter has the port's methods."""

import inspect

import pytest

from headrace.transports import base
from headrace.transports.base import Incoming, Outgoing, TopicLineage
from headrace.transports.local import LocalSubscription, LocalTransport
from headrace.transports.queue import QueueTransport


def methods(port: type) -> dict[str, list[tuple[str, object]]]:
    """Each public method's parameters: name and kind."""
    return {
        name: [
            (parameter.name, parameter.kind)
            for parameter in inspect.signature(member).parameters.values()
        ]
        for name, member in inspect.getmembers(port, inspect.isfunction)
        if not name.startswith("_")
    }


@pytest.mark.parametrize(
    ("adapter", "port"),
    [
        (LocalTransport, base.Transport),
        (QueueTransport, base.Transport),
        (LocalSubscription, base.Subscription),
    ],
)
def test_an_adapter_has_the_methods_of_its_port_with_the_same_parameters(adapter, port):
    own = methods(adapter)
    for name, parameters in methods(port).items():
        assert own.get(name) == parameters, name


@pytest.mark.parametrize("adapter", [LocalTransport, QueueTransport])
def test_an_adapter_tells_where_replies_go(adapter):
    assert isinstance(inspect.getattr_static(adapter, "reply_address"), property)


def test_messages_are_values():
    outgoing = Outgoing(topic="t", key="k", body=b"")
    assert (outgoing.tag, dict(outgoing.headers)) == ("", {})
    incoming = Incoming(queue=("t", 0), offset=0, key="k", tag="", headers={}, body=b"")
    for message in (outgoing, incoming):
        with pytest.raises(AttributeError):
            message.key = "other"


def test_what_is_away_stays_as_it_was_known_and_is_not_taken_for_empty() -> None:
    known = TopicLineage(
        identity="i", ranges={0: (0, 5), 1: (3, 9)}, starts={0: 0, 1: 2}, epochs={1: 4}
    )
    now = TopicLineage(
        identity="i", ranges={0: (1, 6)}, starts={0: 0}, epochs={0: 7}, away=frozenset({1, 2})
    )
    carried = now.carrying(known)
    assert carried.ranges == {0: (1, 6), 1: (3, 9)}
    assert carried.starts == {0: 0, 1: 2}
    assert carried.epochs == {0: 7, 1: 4}
    assert carried.away == frozenset({1, 2})
    assert known.carrying(now) is known
