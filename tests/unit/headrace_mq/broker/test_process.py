"""A process runs a broker until a signal ends it; in a group, until it cannot go on."""

import asyncio
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace_mq.broker.process import run, serve
from headrace_mq.broker.replicated_broker import ReplicatedBroker
from headrace_mq.broker.server import Broker
from headrace_mq.errors import MessageQueueError
from headrace_mq.metrics.listener import MetricsListener
from headrace_mq.name_settings import NamesSettings
from headrace_mq.protocol.names.routes import ALONE
from headrace_mq.settings import BrokerSettings, GroupSettings, StoreSettings
from headrace_mq.testing.embedded import name_server


async def test_serve_is_ready_when_clients_can_connect_and_stops_on_sigterm(
    settings, connect
) -> None:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(serve(settings(), ready=ready.set_result))
    client = await connect(await ready)
    signal.raise_signal(signal.SIGTERM)
    await serving
    assert await client.closed()


async def test_serve_that_cannot_start_raises_and_leaves_no_handlers(broker, settings) -> None:
    with pytest.raises(MessageQueueError):
        await serve(settings(), ready=lambda _: None)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


PROGRAM = """
import sys
from pathlib import Path
from typing import NamedTuple
from headrace_mq.broker.process import run
from headrace_mq.settings import BrokerSettings, StoreSettings
from headrace_mq.store.message_store import MessageStore

store = StoreSettings(directory=Path(sys.argv[1]))
run(BrokerSettings(store=store, port=0), ready=lambda address: print("ready", address, flush=True))
print("stopped", flush=True)
"""


async def test_a_process_runs_a_broker_until_it_is_interrupted(
    tmp_path: Path, connect, batch
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, str(tmp_path / "store"), stdout=asyncio.subprocess.PIPE
    )
    output = process.stdout
    while not (line := (await output.readline()).decode()).startswith("ready"):
        assert line, "the process ended before it was ready"
    client = await connect(line.split()[1])
    assert (await client.produce(batch("t", 0))).results[0].code == 0
    process.send_signal(signal.SIGINT)
    assert await client.closed()
    rest = (await output.read()).decode()
    assert rest.endswith("stopped\n")
    assert await process.wait() == 0


@pytest.mark.parametrize(
    "group", [None, GroupSettings(record="postgresql://no/record", advertise="127.0.0.1:1")]
)
def test_run_raises_what_keeps_it_from_starting(
    tmp_path: Path, group: GroupSettings | None
) -> None:
    (tmp_path / "store").write_text("a file where a directory should be")
    store = StoreSettings(directory=tmp_path / "store")
    settings = BrokerSettings(store=store, port=0, group=group)
    with pytest.raises(MessageQueueError):
        run(settings, ready=lambda _: None)


async def test_a_broker_of_a_group_says_why_it_does_not_start(
    tmp_path: Path, free_port: Callable[[], int], connect, batch
) -> None:
    group = GroupSettings(record="postgresql://no@127.0.0.1:1/record")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        store = StoreSettings(directory=tmp_path / "store")
        settings = BrokerSettings(store=store, port=taken.getsockname()[1], group=group)
        with pytest.raises(MessageQueueError, match="cannot listen on"):
            await serve(settings, ready=lambda _: None)
    lone = StoreSettings(directory=tmp_path / "lone")
    async with Broker(BrokerSettings(store=lone, port=0)) as alone:
        await (await connect(alone)).produce(batch("t", 0))
    settings = BrokerSettings(store=lone, port=free_port(), group=group)
    with pytest.raises(MessageQueueError, match="does not answer"):
        await serve(settings, ready=lambda _: None)


async def test_a_broker_of_a_group_that_cannot_go_on_ends_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[ReplicatedBroker] = []
    start = ReplicatedBroker.start

    async def noted(broker: ReplicatedBroker) -> None:
        await start(broker)
        started.append(broker)

    monkeypatch.setattr(ReplicatedBroker, "start", noted)
    group = GroupSettings(record="postgresql://no@127.0.0.1:1/record", advertise="127.0.0.1:1")
    store = StoreSettings(directory=tmp_path / "store")
    settings = BrokerSettings(store=store, port=0, group=group)
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(serve(settings, ready=ready.set_result))
    await ready
    started[0].failure.set_exception(MessageQueueError("the disk failed"))
    with pytest.raises(MessageQueueError, match="the disk failed"):
        await serving


async def test_serve_answers_for_metrics_until_it_stops(settings, monkeypatch) -> None:
    listeners: list[MetricsListener] = []
    start = MetricsListener.start

    async def noted(listener: MetricsListener) -> None:
        await start(listener)
        listeners.append(listener)

    monkeypatch.setattr(MetricsListener, "start", noted)
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(serve(settings(metrics="127.0.0.1:0"), ready=ready.set_result))
    await ready
    host, _, port = listeners[0].address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
    assert b"headrace_broker_takes_messages 1.0" in await reader.read()
    writer.close()
    signal.raise_signal(signal.SIGTERM)
    await serving
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(host, int(port))


async def test_serve_without_room_for_its_metrics_says_so_and_closes_its_broker(settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        asked = settings(metrics=f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(MessageQueueError, match="cannot serve metrics on"):
            await serve(asked, ready=lambda _: None)
    async with Broker(settings()):
        pass


async def test_a_broker_that_serves_is_registered_at_its_name_servers(settings) -> None:
    async with name_server() as server:
        names = NamesSettings(servers=server.address, name="single")
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving = asyncio.ensure_future(serve(settings(names=names), ready=ready.set_result))
        address = await ready
        while not (found := server.routes("default", "single").brokers):
            await asyncio.sleep(0)
        assert [(one.role, one.addresses) for one in found] == [(ALONE, [address])]
        signal.raise_signal(signal.SIGTERM)
        await serving
        while server.routes("", "").brokers:
            await asyncio.sleep(0)


async def test_a_broker_with_a_wrong_address_of_name_servers_does_not_start(settings) -> None:
    with pytest.raises(MessageQueueError, match="--nameservers"):
        await serve(settings(names=NamesSettings(servers="nowhere")), ready=print)
