"""A setting decides whether messages leave the process."""

from functools import partial

import pytest

from headrace.errors import HeadraceError
from headrace.transports import queue
from headrace.transports.base import Outgoing
from headrace.transports.local import LocalTransport
from headrace.transports.open import open_transport
from headrace_mq.errors import MessageQueueError
from headrace_mq.settings import ProducerSettings


async def test_without_a_broker_messages_stay_in_this_process_until_the_block_ends() -> None:
    async with open_transport(None) as transport:
        assert isinstance(transport, LocalTransport)
        await transport.ensure_topic("t", queues=1, forever=False)
    with pytest.raises(HeadraceError, match="closed"):
        await transport.publish(Outgoing(topic="t", key="k", body=b""))


async def test_a_broker_that_is_not_there_is_an_error_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    impatient = partial(ProducerSettings, send_timeout_ms=20)
    monkeypatch.setattr(queue, "ProducerSettings", impatient)
    with pytest.raises((MessageQueueError, OSError)):
        async with open_transport("127.0.0.1:1"):
            pass
