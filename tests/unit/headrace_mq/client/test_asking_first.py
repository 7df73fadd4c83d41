"""Who comes first when records have arrived: the application that handles them, or the next fetch."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headrace_mq._net.link import Link
from headrace_mq.client.pulling import ASKED_FIRST_RECORDS
from headrace_mq.filters.filter import Filter
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import FetchAnswer, encode_fetch_answer
from headrace_mq.protocol.codes import RequestCode

A = QueueRef("t", 0)


@pytest.mark.parametrize(
    ("records", "filters", "order"),
    [
        (ASKED_FIRST_RECORDS - 1, {}, ["handled", "asked"]),
        (ASKED_FIRST_RECORDS, {}, ["asked", "handled"]),
        (1, {"t": Filter("_key IS NULL")}, ["asked", "handled"]),
    ],
)
async def test_what_takes_long_to_handle_or_to_find_is_asked_for_first(
    broker: Any, watch: Any, link: Link, clock: Any, until: Callable[[Callable[[], object]], Any],
    records: int, filters: Any, order: list[str],
) -> None:  # fmt: skip
    broker.held = {RequestCode.FETCH}
    watched = watch(link, clock)
    pulling, seen = watched.pulling, []
    pulling._filters = filters
    watched.start(A)
    parked = await broker.next(RequestCode.FETCH)
    fetch, loop = pulling._fetch, asyncio.get_running_loop()

    def asking(shares: Any) -> None:
        seen.append("asked")
        fetch(shares)

    pulling._fetch = asking
    # An application that waits goes on in a later turn of the loop, as fetches do.
    pulling._on_records = lambda: loop.call_soon(seen.append, "handled")
    parked.answer(encode_fetch_answer(FetchAnswer([], [])), broker.append(A, [b"a"] * records))
    await until(lambda: len(seen) >= 2)
    assert seen == order
