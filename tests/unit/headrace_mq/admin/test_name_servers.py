"""Each name server tells what it knows, or why it does not answer."""

from collections.abc import Callable

import pytest

from headrace_mq._net.link import Link, LinkSettings
from headrace_mq.admin.name_servers import ask_name_servers
from headrace_mq.errors import MessageQueueError
from headrace_mq.protocol.bodies import encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.names.routes import LEADER, Register, RoutesAnswer
from headrace_mq.testing.embedded import name_server


async def test_each_name_server_is_asked(free_port: Callable[[], int]) -> None:
    away = f"127.0.0.1:{free_port()}"
    async with name_server() as one, name_server() as other:
        link = Link(one.address, client_id="broker", settings=LinkSettings((1, 5)))
        await link.start(60_000)
        here = encode(Register("c", "g1", "a:1", LEADER, 1, ["a:1"]))
        await link.request(RequestCode.REGISTER, here, timeout_ms=60_000)
        servers = f"{one.address},{away},{other.address}"
        found = await ask_name_servers(servers, timeout_ms=3_000)
        await link.aclose()
    assert list(found) == servers.split(",")
    first, absent, last = found.values()
    assert isinstance(first, RoutesAnswer)
    assert [each.broker for each in first.brokers] == ["a:1"]
    assert isinstance(absent, MessageQueueError)
    assert last == RoutesAnswer(True, [])


async def test_a_wrong_address_is_refused() -> None:
    for wrong in ("nowhere", "nameserver://ns:1/c"):
        with pytest.raises(ValueError, match=r"looks like|name the name servers alone"):
            await ask_name_servers(wrong)
