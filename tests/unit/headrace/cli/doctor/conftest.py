"""A server that speaks TLS and nothing else."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest


@pytest.fixture
def tls_server() -> Callable[[ssl.SSLContext], AbstractAsyncContextManager[int]]:
    """Serves for a block, and gives its port."""

    @asynccontextmanager
    async def serve(context: ssl.SSLContext) -> AsyncIterator[int]:
        def ended(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.abort()

        async with await asyncio.start_server(ended, "127.0.0.1", 0, ssl=context) as server:
            yield server.sockets[0].getsockname()[1]

    return serve
