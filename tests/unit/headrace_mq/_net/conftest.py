"""Sockets differ between event loops: what listens is tested on both."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

from tests.unit.headrace_mq.conftest import uvloop_of_a_test


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    plain = {"asyncio": asyncio.new_event_loop}
    listens = item.path.name == "test_server.py"
    return plain | {"uvloop": uvloop_of_a_test} if listens else plain
