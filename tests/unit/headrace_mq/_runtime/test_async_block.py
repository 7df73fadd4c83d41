"""What a block starts it also closes."""

import pytest

from headrace_mq._runtime.async_block import AsyncBlock


class Client(AsyncBlock):
    def __init__(self) -> None:
        self.said: list[str] = []

    async def start(self) -> None:
        self.said.append("started")

    async def aclose(self) -> None:
        self.said.append("closed")


async def test_a_block_starts_and_closes() -> None:
    async with Client() as client:
        assert client.said == ["started"]
    assert client.said == ["started", "closed"]


async def test_an_error_closes_and_goes_on() -> None:
    client = Client()
    with pytest.raises(ValueError, match="mine"):
        async with client:
            raise ValueError("mine")
    assert client.said == ["started", "closed"]


async def test_a_block_that_cannot_start_or_close_raises() -> None:
    with pytest.raises(NotImplementedError):
        await AsyncBlock().start()
    with pytest.raises(NotImplementedError):
        await AsyncBlock().aclose()
