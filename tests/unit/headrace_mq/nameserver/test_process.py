"""A process runs a name server until a signal ends it."""

import asyncio
import signal

import pytest

from headrace_mq.errors import MessageQueueError
from headrace_mq.name_settings import NameServerSettings
from headrace_mq.nameserver.process import run, serve


async def test_serve_is_ready_when_clients_can_connect_and_stops_on_sigterm() -> None:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    settings = NameServerSettings(port=0, metrics="127.0.0.1:0")
    serving = asyncio.ensure_future(serve(settings, ready=ready.set_result))
    host, port = (await ready).split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    signal.raise_signal(signal.SIGTERM)
    await serving
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(MessageQueueError, match=r"cannot listen on 203.0.113.1"):
        run(NameServerSettings(host="203.0.113.1", insecure=True, port=0), ready=print)
