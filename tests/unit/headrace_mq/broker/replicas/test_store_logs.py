"""The rules see the ends of logs while the store is open, and while it is not."""

from typing import Any


async def test_ends_stay_known_while_the_store_is_closed(places: list[Any], record: Any) -> None:
    place = places[0]
    followers = await place.lead(record)
    log = place.logs.by_name["forever"]
    assert log.end == 0
    place.append(1)
    await place.until(lambda: log.end > 0)
    end = log.end
    followers.close()
    await place.replica.aclose()
    assert log.end == log.durable == end
    place.replica.open()
    assert place.logs.ends()["forever"] == end
    assert log.history.starts == [(followers.epoch, 0)]
