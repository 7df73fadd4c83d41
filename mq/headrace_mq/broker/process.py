"""
The process of a broker: its event loop, its signals, its garbage collector.

Used by the command line and by tests, which give it settings; runs a `Broker`, or a `ReplicatedBroker` in a group.
"""

import asyncio
import gc
import signal
from collections.abc import Callable
from typing import Any

from headrace_mq._runtime import event_loop
from headrace_mq.broker.metrics.collector import BrokerMetrics
from headrace_mq.broker.registration import Registrar, member, single
from headrace_mq.broker.replicated_broker import ReplicatedBroker
from headrace_mq.broker.server import Broker
from headrace_mq.effective_settings import NO_SOURCES, Sources
from headrace_mq.metrics.listener import MetricsListener
from headrace_mq.protocol.names.routes import Register
from headrace_mq.settings import BrokerSettings

__all__ = ["run", "serve"]

# After `gc.freeze` little garbage is cyclic: collections are rarer than by default (700, 10, 10),
# which takes milliseconds off the slowest requests.
_GC_THRESHOLDS = (50_000, 20, 100)


async def serve(
    settings: BrokerSettings, *, ready: Callable[[str], None], sources: Sources = NO_SOURCES
) -> None:
    """Runs a broker until the process gets SIGTERM or SIGINT, then stops it in order.

    With TLS, SIGHUP has it read its certificates again.

    Args:
        settings: of the broker.
        ready: called with the bound address once clients can connect.
        sources: what gave the settings that are no defaults.

    Raises:
        MessageQueueError: the broker cannot start, its metrics cannot be served, or its name servers have no address; the
            sentence says how to go on.
    """
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    kind = Broker if settings.group is None else ReplicatedBroker
    broker = kind(settings, sources=sources)
    metrics, names = _metrics(settings, broker), _names(settings, broker)
    handlers: dict[int, Callable[[], None]] = {signal.SIGTERM: stop.set, signal.SIGINT: stop.set}
    if settings.tls_certificate is not None:  # without it the end of a terminal is the broker's too
        handlers[signal.SIGHUP] = broker.renew_certificates
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        await broker.start()
        if metrics is not None:
            await metrics.start()
        if names is not None:
            names.start()
        ready(broker.address)
        await _until(stop, broker)
    finally:
        if names is not None:  # first: clients are sent here no more
            await names.aclose()
        if metrics is not None:
            await metrics.aclose()
        await broker.aclose()
        for number in handlers:
            loop.remove_signal_handler(number)


def _metrics(settings: BrokerSettings, broker: Broker | ReplicatedBroker) -> MetricsListener | None:
    if settings.metrics is None:
        return None
    if isinstance(broker, ReplicatedBroker):
        collected = BrokerMetrics(
            settings,
            lambda: broker.state,
            broker.figures,
            reads=lambda: None if broker.reads is None else broker.reads.counts,
        )
    else:
        collected = BrokerMetrics(settings, lambda: broker.state, lambda: None)
    return MetricsListener(settings.metrics, collected.text)


def _names(settings: BrokerSettings, broker: Broker | ReplicatedBroker) -> Registrar | None:
    names = settings.names
    if names is None:
        return None

    def describe() -> Register | None:
        if isinstance(broker, ReplicatedBroker):
            return member(broker.figures())
        state = broker.state
        return None if state is None else single(names, broker.address, state)

    return Registrar(names.servers, describe)


async def _until(stop: asyncio.Event, broker: Broker | ReplicatedBroker) -> None:
    """Returns when the process is to stop. Raises what keeps a broker of a group from going on."""
    stopping = asyncio.ensure_future(stop.wait())
    if not isinstance(broker, ReplicatedBroker):
        await stopping
        return
    waits: list[asyncio.Future[Any]] = [stopping, broker.failure]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if broker.failure.done():
        broker.failure.result()


def run(
    settings: BrokerSettings, *, ready: Callable[[str], None], sources: Sources = NO_SOURCES
) -> None:
    """Gives this process to a broker, on uvloop where it is installed; returns when it stopped.

    Raises:
        MessageQueueError: the broker cannot start; the sentence says how to go on.
    """

    def calm(address: str) -> None:
        gc.set_threshold(*_GC_THRESHOLDS)
        gc.collect()
        gc.freeze()
        ready(address)

    event_loop.run(serve(settings, ready=calm, sources=sources))
