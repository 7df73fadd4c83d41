"""A data directory that goes away under a running broker ends its acknowledgements."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.client.producer.producer import Producer
from headrace_mq.errors import MessageQueueError
from headrace_mq.message import Message
from headrace_mq.settings import ProducerSettings

IMPATIENT = ProducerSettings(send_timeout_ms=3_000, reconnect_ms_max=100)


async def test_a_broker_without_its_directory_acknowledges_nothing_and_says_why(
    broker: Any, tmp_path: Path
) -> None:
    async with (
        Producer(broker.address, IMPATIENT) as producer,
        AdminClient(broker.address) as admin,
    ):
        await producer.create_topic("t", queues=1)
        await producer.send(Message(topic="t", key="k", body=b"there"))
        shutil.rmtree(tmp_path / "data")
        with pytest.raises(MessageQueueError):
            await producer.send(Message(topic="t", key="k", body=b"gone"))
        status = await admin.status()
        assert status.refuses is not None
        assert "was removed while the broker ran" in status.refuses
        assert (await admin.describe()).read_only


async def test_messages_are_refused_while_the_directory_is_moved_and_accepted_again_later(
    start_broker: Any, tmp_path: Path
) -> None:
    broker = await start_broker()
    here, elsewhere = tmp_path / "broker-0", tmp_path / "elsewhere"
    async with Producer(broker.address, IMPATIENT) as producer:
        await producer.create_topic("t", queues=1)
        await producer.send(Message(topic="t", key="k", body=b"1"))
        here.rename(elsewhere)
        refused: Exception | None = None
        while refused is None:
            try:
                await producer.send(Message(topic="t", key="k", body=b"2"))
            except MessageQueueError as error:
                refused = error
        assert "cannot be used" in str(refused) or "No such file" in str(refused)
        # What the broker writes beside its messages may have made the folder again.
        shutil.rmtree(here, ignore_errors=True)
        elsewhere.rename(here)
        taken = False
        while not taken:
            try:
                taken = await producer.send(Message(topic="t", key="k", body=b"3")) is not None
            except MessageQueueError:
                taken = False
