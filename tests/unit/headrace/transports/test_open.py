"""A setting decides whether messages leave the process."""

import pytest

from headrace.app import App
from headrace.errors import BrokerUnreachable, HeadraceError
from headrace.settings import Settings
from headrace.transports.base import Outgoing
from headrace.transports.local import LocalTransport
from headrace.transports.open import open_transport


async def test_without_a_broker_messages_stay_in_this_process_until_the_block_ends() -> None:
    async with open_transport(None) as transport:
        assert isinstance(transport, LocalTransport)
        await transport.ensure_topic("t", queues=1, forever=False)
    with pytest.raises(HeadraceError, match="closed"):
        await transport.publish(Outgoing(topic="t", key="k", body=b""))


async def test_a_broker_that_is_not_there_is_an_error_before_anything_runs() -> None:
    with pytest.raises(BrokerUnreachable, match=r"no broker answers at 127.0.0.1:1 .*check"):
        async with open_transport("127.0.0.1:1", within_ms=20):
            pass


async def test_a_client_waits_for_its_broker_no_longer_than_its_setting_says() -> None:
    settings = Settings(broker="127.0.0.1:1", connect_ms=20)
    with pytest.raises(BrokerUnreachable, match="no broker answers"):
        async with App("shop").client(settings):
            pass
