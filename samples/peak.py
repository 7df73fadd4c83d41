"""
A burst of ten times what a service can handle: the queue takes it, senders notice nothing, and the service works it off.

    headrace broker --data var/broker
    python -m samples.peak 127.0.0.1:9876
    python -m samples.peak 127.0.0.1:9876 --plot peak.svg     needs matplotlib

The queue alone. In the end each order was handled once, and those of each customer in their order.
"""

import argparse
import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from headrace_mq import AdminClient, ConsumerSettings, Message, Producer, PullConsumer, QueueRef

__all__ = ["Moment", "Plan", "main", "play", "plot"]

TOPIC, QUEUES, CUSTOMERS = "peak-orders", 4, 50
# The service takes what it can handle in this time, and then waits for the rest of it, as for a slow database.
TURN_S = 0.05


class Plan(NamedTuple):
    """How many orders come and are handled, per second, and for how many seconds.

    Attributes:
        service: what the service can handle.
        quiet: what comes before and after the burst.
        burst: what comes in the burst.
        quiet_s: how long it is quiet before the burst; afterwards, until all is handled.
        burst_s: how long the burst takes.
        look_s: how often to look.
    """

    service: int = 400
    quiet: int = 100
    burst: int = 4_000
    quiet_s: float = 3
    burst_s: float = 1
    look_s: float = 0.5


class Moment(NamedTuple):
    """What there is to see at a time since the begin, in seconds.

    Attributes:
        at_s: the time.
        sent: orders acknowledged by the broker.
        handled: orders handled by the service.
        send_ms: how long an order took to be acknowledged since the last moment, the median; 0 if none was.
    """

    at_s: float
    sent: int
    handled: int
    send_ms: float

    @property
    def backlog(self) -> int:
        """Orders that wait in the queue."""
        return self.sent - self.handled


class Shop:
    """Customers that send orders, and the service that handles them."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._counts = [0] * CUSTOMERS
        self._times_ms: list[float] = []
        self._begin = time.perf_counter()
        self.sent = 0
        self.handled: dict[str, list[int]] = defaultdict(list)
        self.moments: list[Moment] = []

    @property
    def is_done(self) -> bool:
        """Whether the burst is over and all is handled."""
        return self._is_after() and sum(map(len, self.handled.values())) >= sum(self._counts)

    def _seconds(self) -> float:
        return time.perf_counter() - self._begin

    def _is_after(self) -> bool:
        return self._seconds() > self._plan.quiet_s + self._plan.burst_s

    async def send(self, producer: Producer) -> None:
        """Sends at the rates of the plan, until all is handled."""
        due, last = 0.0, 0.0
        async with asyncio.TaskGroup() as orders:
            while not self.is_done:
                now = self._seconds()
                quiet = now < self._plan.quiet_s or self._is_after()
                due += (now - last) * (self._plan.quiet if quiet else self._plan.burst)
                last = now
                while due >= 1:
                    orders.create_task(self._order(producer))
                    due -= 1
                await asyncio.sleep(0.005)

    async def _order(self, producer: Producer) -> None:
        customer = sum(self._counts) % CUSTOMERS
        number = self._counts[customer]
        self._counts[customer] += 1
        begin = time.perf_counter()
        await producer.send(Message(topic=TOPIC, key=f"customer-{customer}", body=b"%d" % number))
        self._times_ms.append((time.perf_counter() - begin) * 1_000)
        self.sent += 1

    async def serve(self, consumer: PullConsumer) -> None:
        """Handles as many orders as it can, until all is handled."""
        at_a_time = max(1, round(self._plan.service * TURN_S))
        while not self.is_done:
            begin = time.perf_counter()
            for record in await consumer.fetch(at_a_time, timeout_ms=round(TURN_S * 1_000)):
                self.handled[record.key].append(int(record.body))
            await consumer.commit()
            await asyncio.sleep(max(0.0, begin + TURN_S - time.perf_counter()))

    async def look(self) -> None:
        """Notes moments, until all is handled."""
        while not self.is_done:
            await asyncio.sleep(self._plan.look_s)
            times, self._times_ms = self._times_ms, []
            count = sum(map(len, self.handled.values()))
            median = statistics.median(times) if times else 0.0
            self.moments.append(Moment(self._seconds(), self.sent, count, median))


async def play(address: str, plan: Plan | None = None) -> list[Moment]:
    """Sends the orders of a plan and handles them; returns what there was to see.

    Args:
        address: of the broker.
        plan: how many; None: the burst has ten times what the service handles.

    Raises:
        AssertionError: an order was lost, handled twice, or overtook another one of its customer.
    """
    shop = Shop(plan or Plan())
    async with AdminClient(address) as admin:
        await admin.create_topic(TOPIC, queues=QUEUES)
    queues = [QueueRef(TOPIC, number) for number in range(QUEUES)]
    settings = ConsumerSettings(start="latest")
    async with (
        Producer(address) as producer,
        PullConsumer(address, group=f"peak-{time.time_ns()}", settings=settings) as consumer,
    ):
        await consumer.assign(queues)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(shop.serve(consumer))
            tasks.create_task(shop.send(producer))
            tasks.create_task(shop.look())
    for customer, numbers in shop.handled.items():
        assert numbers == list(range(len(numbers))), f"the orders of {customer} are wrong"
    assert sum(map(len, shop.handled.values())) == shop.sent
    return shop.moments


def plot(path: Path, moments: Sequence[Moment]) -> None:
    """Draws the backlog and the time that senders waited. Needs matplotlib."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(8, 4.5), layout="constrained")
    seconds = [one.at_s for one in moments]
    above.fill_between(seconds, [one.backlog for one in moments], color="tab:blue", alpha=0.6)
    above.set_ylabel("orders that wait")
    below.plot(seconds, [one.send_ms for one in moments], color="tab:orange")
    below.set_ylim(bottom=0)
    below.set_ylabel("ms to send one")
    below.set_xlabel("seconds")
    figure.savefig(path)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the sample and prints what there is to see."""
    parser = argparse.ArgumentParser(prog="python -m samples.peak", description=__doc__)
    parser.add_argument("address", help="of the broker")
    parser.add_argument("--plot", type=Path, help="draw it into this file")
    asked = parser.parse_args(arguments)
    moments = asyncio.run(play(asked.address))
    print("seconds     sent  handled   waiting  ms to send")
    for one in moments:
        print(f"{one.at_s:7.1f}{one.sent:9,}{one.handled:9,}{one.backlog:10,}{one.send_ms:12.1f}")
    print("each order was handled once, those of each customer in their order")
    if asked.plot is not None:
        plot(asked.plot, moments)


if __name__ == "__main__":
    main()
