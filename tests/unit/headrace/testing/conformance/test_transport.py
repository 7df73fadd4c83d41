"""The suite catches a transport that breaks a promise of the port."""

import asyncio
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from headrace.testing.conformance import subscriptions, transport
from headrace.testing.conformance.transport import DurableTransportConformance, TransportConformance
from headrace.transports.base import (
    Outgoing,
    Place,
    QueueId,
    Report,
    TopicLineage,
    Waiting,
)
from headrace.transports.local import LocalTransport
from tests.unit.headrace.testing.conformance.broken_transports import failures


class SpreadsAKeyOverTheQueues(LocalTransport):
    number = 0

    def _append(self, message: Outgoing) -> Place:
        self.number += 1
        topic, key, body, tag, headers = message
        place = super()._append(Outgoing(topic, f"{key}{self.number}", body, tag, headers))
        held = self.queue((topic, place.queue)).messages
        held[-1] = held[-1]._replace(key=key)
        return place


class PublishesAfterASuspension(LocalTransport):
    async def publish(self, message: Outgoing) -> Place:
        await asyncio.sleep(0)
        return await super().publish(message)


class TellsDuringTheCall(LocalTransport):
    def publish_soon(self, message: Outgoing, told: Report) -> bool:
        told(self._append(message))
        return True


class SchedulesAtOnce(LocalTransport):
    async def schedule(self, message: Outgoing, due: datetime) -> None:
        await self.publish(message)


class DropsHeaders(LocalTransport):
    def _append(self, message: Outgoing) -> Place:
        return super()._append(message._replace(headers={}))


class MakesTopicsAnew(LocalTransport):
    async def ensure_topic(self, topic: str, *, queues: int, forever: bool) -> None:
        self._topics.pop(topic, None)
        await super().ensure_topic(topic, queues=queues, forever=forever)


class ForgetsGroups(LocalTransport):
    def commit(self, group: str, queue: QueueId, offset: int) -> None:
        pass


class CommitsWhatTheCallerKeeps(LocalTransport):
    async def committed(self, group: str, topic: str) -> dict[int, int]:
        return dict.fromkeys(range(len(self._topic(topic).queues)), 0)


class CountsFromTheBeginning(LocalTransport):
    async def waiting(self, topic: str, offsets: Mapping[int, int]) -> list[Waiting]:
        return await super().waiting(topic, {})


class HasOneIdentityForAll(LocalTransport):
    async def topic_lineage(self, topic: str) -> TopicLineage:
        found = self._topics.get(topic)
        ranges = {n: (q.first, q.end) for n, q in enumerate(found.queues)} if found else {}
        return TopicLineage(identity="the same", ranges=ranges)


class ReadsOneTooMany(LocalTransport):
    def read(self, queue: QueueId, first: int, end: int) -> Any:
        return super().read(queue, first, end + 1)


class PausesAll(LocalTransport):
    async def paused(self, groups: Collection[str] | None = None, /) -> Collection[str]:
        return list(self._groups) if groups is None else groups


class LosesReplies(LocalTransport):
    async def reply(self, address: str, correlation: str, body: bytes) -> None:
        await super().reply(address, correlation, b"")


class TakesMessagesWhenClosed(LocalTransport):
    async def aclose(self) -> None:
        await super().aclose()
        self._closed = False


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What never comes is not waited for as long as what comes late, and late is sooner."""
    for module in (subscriptions, transport):
        monkeypatch.setattr(module, "PATIENCE_S", 0.5)
    monkeypatch.setattr(transport, "AHEAD", timedelta(seconds=0.2))


async def test_the_reference_adapter_passes() -> None:
    assert await failures(TransportConformance(), LocalTransport) == []


@pytest.mark.parametrize(
    "adapter",
    [
        SpreadsAKeyOverTheQueues,
        PublishesAfterASuspension,
        TellsDuringTheCall,
        SchedulesAtOnce,
        DropsHeaders,
        MakesTopicsAnew,
        ForgetsGroups,
        CommitsWhatTheCallerKeeps,
        CountsFromTheBeginning,
        HasOneIdentityForAll,
        ReadsOneTooMany,
        PausesAll,
        LosesReplies,
        TakesMessagesWhenClosed,
    ],
    ids=lambda adapter: adapter.__name__,
)
async def test_a_broken_adapter_is_caught(adapter: type[LocalTransport]) -> None:
    assert await failures(TransportConformance(), adapter) != []


async def test_a_queue_that_forgets_is_caught() -> None:
    async def reopen() -> LocalTransport:
        return LocalTransport()

    suite: Any = DurableTransportConformance()
    for name in [name for name in dir(suite) if name.startswith("test_")]:
        forgetful = LocalTransport()
        with pytest.raises(Exception, match="no topic"):
            await getattr(suite, name)(forgetful, reopen)
        await forgetful.aclose()
