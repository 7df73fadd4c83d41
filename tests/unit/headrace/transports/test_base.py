"""The port's values, and that every adapter has the port's methods."""

import inspect

import pytest

from headrace.transports import base
from headrace.transports.base import Incoming, Outgoing
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
