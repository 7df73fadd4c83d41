"""Sockets differ between event loops: what listens is tested on both."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    plain = {"asyncio": asyncio.new_event_loop}
    listens = item.path.name == "test_server.py"
    return plain | {"uvloop": uvloop.new_event_loop} if listens else plain
