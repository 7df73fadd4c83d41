from collections.abc import Callable

import pytest

from headrace_mq.admin.connection import AdminConnection
from headrace_mq.broker.server import Broker
from headrace_mq.errors import Closed, ConnectionLost
from headrace_mq.protocol.bodies import BrokerDescription
from headrace_mq.protocol.codes import RequestCode


async def test_a_connection_asks_until_it_is_closed(broker: Broker) -> None:
    async with AdminConnection(broker.address) as asking:
        described = await asking._ask(BrokerDescription, RequestCode.DESCRIBE_BROKER)
        assert described.broker == broker.address
    with pytest.raises(Closed):
        await asking._ask(BrokerDescription, RequestCode.DESCRIBE_BROKER)


async def test_without_a_broker_it_says_what_to_check(free_port: Callable[[], int]) -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(ConnectionLost, match=f"no broker answers at {address}"):
        await AdminConnection(address, timeout_ms=30).start()
    # Ten minutes are of the answers: the test would not end.
    with pytest.raises(ConnectionLost, match="no broker answers"):
        await AdminConnection(address, timeout_ms=600_000, connect_ms=30).start()


async def test_the_reason_why_no_connection_was_made_is_kept(
    broker: Broker, free_port: Callable[[], int]
) -> None:
    away = AdminConnection(f"127.0.0.1:{free_port()}", timeout_ms=30)
    assert away.trouble is None
    with pytest.raises(ConnectionLost):
        await away.start()
    assert isinstance(away.trouble, OSError)
    async with AdminConnection(broker.address) as there:
        assert there.trouble is None
