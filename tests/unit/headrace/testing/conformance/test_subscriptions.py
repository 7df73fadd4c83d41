"""The suite catches a subscription that breaks a promise of the port."""

import asyncio
from collections.abc import Sequence

import pytest

from headrace.testing.conformance import subscriptions
from headrace.testing.conformance.subscriptions import SubscriptionConformance
from headrace.transports.base import Incoming, OffsetLoader, QueueId
from headrace.transports.local import LocalSubscription, LocalTransport, _Position
from tests.unit.headrace.testing.conformance.broken_transports import failures


class Subscribes(LocalTransport):
    """With another kind of subscription."""

    kind: type[LocalSubscription]

    async def subscribe(
        self, group: str, topics: Sequence[str], *, offsets: OffsetLoader | None = None
    ) -> LocalSubscription:
        made = await super().subscribe(group, topics, offsets=offsets)
        made.__class__ = self.kind  # type: ignore[assignment]  # as good as made so
        return made


def subscribing(made: type[LocalSubscription]) -> type[LocalTransport]:
    return type(made.__name__, (Subscribes,), {"kind": made})


@subscribing
class AcknowledgesTheHighest(LocalSubscription):
    def ack(self, message: Incoming) -> None:
        if message.queue in self._positions and self._load_offsets is None:
            known = self._transport._groups[self._group].offsets.get(message.queue, 0)
            offset = max(known, message.offset + 1)
            self._transport.commit(self._group, message.queue, offset)


@subscribing
class LosesWhatAPollWasGivenUpWith(LocalSubscription):
    async def poll(self) -> list[Incoming]:
        messages = await super().poll()
        await asyncio.sleep(0)
        return messages


@subscribing
class ReturnsEmptyLists(LocalSubscription):
    async def poll(self) -> list[Incoming]:
        await asyncio.sleep(0)
        return self._read()


@subscribing
class StandsBeyondTheEnd(LocalSubscription):
    async def _place(self) -> None:
        for queue in self._unplaced:
            assert self._load_offsets is not None
            offsets = await self._load_offsets([queue])
            self._positions[queue] = _Position(offsets.get(queue, 0))
        self._unplaced = []


@subscribing
class IgnoresTheCallersOffsets(LocalSubscription):
    async def _place(self) -> None:
        for queue in self._unplaced:
            self._positions[queue] = _Position(0)
        self._unplaced = []


@subscribing
class NeverSeeks(LocalSubscription):
    def seek(self, queue: QueueId, offset: int) -> None:
        pass


@subscribing
class WaitsWhenClosed(LocalSubscription):
    async def poll(self) -> list[Incoming]:
        while not (messages := self._read()):
            self._news.clear()
            await self._news.wait()
        return messages


@subscribing
class GivesEveryMemberAll(LocalSubscription):
    def assign(self, queues: Sequence[QueueId]) -> None:
        every = [queue for queue in self._transport._queue_ids() if queue[0] in self.topics]
        super().assign(every)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What never comes is not waited for as long as what comes late."""
    monkeypatch.setattr(subscriptions, "PATIENCE_S", 0.5)


async def test_the_reference_adapter_passes() -> None:
    assert await failures(SubscriptionConformance(), LocalTransport) == []


@pytest.mark.parametrize(
    "adapter",
    [
        AcknowledgesTheHighest,
        LosesWhatAPollWasGivenUpWith,
        ReturnsEmptyLists,
        StandsBeyondTheEnd,
        IgnoresTheCallersOffsets,
        NeverSeeks,
        WaitsWhenClosed,
        GivesEveryMemberAll,
    ],
    ids=lambda adapter: adapter.__name__,
)
async def test_a_broken_subscription_is_caught(adapter: type[LocalTransport]) -> None:
    assert await failures(SubscriptionConformance(), adapter) != []
