"""Members of a group that share what another process sends."""

import asyncio
from collections.abc import Sequence

import pytest

from benchmarks.growth.members import members


class Fake:
    """A driver that takes what stands in a queue."""

    def __init__(self, waiting: "asyncio.Queue[bytes | None]") -> None:
        self.waiting = waiting
        self.acknowledged = 0
        self.left: list[str] = []
        self._taken = 0

    async def open(self) -> None: ...

    async def join(self) -> None: ...

    async def aclose(self) -> None:
        self.left.append("closed")

    async def leave(self) -> None:
        self.left.append("left")

    async def send_many(self, bodies: Sequence[bytes], keys: Sequence[str]) -> None: ...

    async def send(self, body: bytes, key: str) -> None: ...

    async def take(self) -> Sequence[bytes]:
        body = await self.waiting.get()
        self._taken = 0 if body is None else 1
        return [] if body is None else [body]

    async def done(self) -> None:
        self.acknowledged += self._taken


class Dealt(Fake):
    """A driver whose system deals out queues, later than it joins."""

    def __init__(self, waiting: "asyncio.Queue[bytes | None]", shares: list[int]) -> None:
        super().__init__(waiting)
        self.shares = shares

    def held(self) -> int:
        return self.shares.pop(0) if len(self.shares) > 1 else self.shares[0]


async def test_what_members_took_together_is_waited_for() -> None:
    waiting: asyncio.Queue[bytes | None] = asyncio.Queue()
    made: list[Fake] = []

    def make() -> Fake:
        made.append(Fake(waiting))
        return made[-1]

    async with members(make, 3, 6) as taking:
        for _ in range(10):
            waiting.put_nowait(b"x")
        await taking.until(10)
        assert taking.taken == sum(one.acknowledged for one in made) == 10
        # What lets each of them end: nothing to take.
        for _ in made:
            waiting.put_nowait(None)
    assert [one.left for one in made] == [["left", "closed"]] * 3


async def test_nothing_begins_before_each_has_its_share() -> None:
    waiting: asyncio.Queue[bytes | None] = asyncio.Queue()
    shares = [6, 0, 3]
    async with members(lambda: Dealt(waiting, shares), 2, 6):
        assert shares == [3]
        waiting.put_nowait(None)
        waiting.put_nowait(None)


async def test_a_member_that_fails_ends_the_waiting() -> None:
    class Broken(Fake):
        async def done(self) -> None:
            raise ConnectionError("gone")

    waiting: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def wait_for_many() -> None:
        async with members(lambda: Broken(waiting), 1, 1) as taking:
            waiting.put_nowait(b"x")
            await taking.until(1_000)

    with pytest.raises(ConnectionError, match="gone"):
        await wait_for_many()
