"""What a client process does with a driver."""

from collections.abc import Sequence

from benchmarks.peers.client import pour


class Fake:
    """A driver that only counts."""

    def __init__(self) -> None:
        self.sent = 0

    async def send_many(self, bodies: Sequence[bytes], keys: Sequence[str]) -> None:
        assert len(bodies) == len(keys)
        self.sent += len(bodies)


class Late(Fake):
    """One whose server has messages later than they are handed over."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived = 7

    async def pour(self, bodies: Sequence[bytes], keys: Sequence[str]) -> None:
        await self.send_many(bodies, keys)

    async def waiting(self) -> int:
        found = self.arrived
        self.arrived = 7 + self.sent
        return found


ASKED = {"body": 10, "count": 2_500, "seconds": 60}


async def test_as_many_as_asked_for_are_poured_and_the_server_has_them() -> None:
    driver = Late()
    said = await (await pour(driver, ASKED))()
    assert said["count"] == driver.sent == 2_500
    assert driver.arrived == 2_507


async def test_a_driver_that_cannot_pour_sends() -> None:
    driver = Fake()
    said = await (await pour(driver, ASKED))()
    assert said["count"] == driver.sent == 2_500


async def test_what_is_not_poured_in_time_is_left_out() -> None:
    said = await (await pour(Late(), {**ASKED, "seconds": 0}))()
    assert said["count"] == 0
