"""Streams of thousands of events, each of which touches another row, go through Spark event by event."""

from typing import Any

import pytest

from headrace.spark.rebuild import rebuild

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

STREAMS, EVENTS = 8, 2_000


@pytest.mark.parametrize("read_models_url", ["sqlite"], indirect=True)
async def test_eight_streams_of_two_thousand_events_are_rebuilt_by_another_key(
    rows_of: Any, spark: Any, broker: Any, ledger: Any, make_stream: Any, publish: Any,
    catch_up_live: Any, read_models_url: str,
) -> None:  # fmt: skip
    await publish(
        [
            make_stream(
                f"a{number}", 1,
                *(ledger.Booked(partner=f"p{at % 700}", amount=number + at) for at in range(EVENTS)),
            )
            for number in range(STREAMS)
        ]
    )  # fmt: skip
    await catch_up_live(read_models_url, ledger.partners)
    live = await rows_of(read_models_url, ledger.partners)
    report = await rebuild(
        "ledger_app:app", "partners", broker=broker.address, read_models_url=read_models_url,
        spark=spark,
    )  # fmt: skip
    assert (report.switched, report.mismatches, report.compared) == (True, 0, 700)
    assert report.events == STREAMS * EVENTS
    assert await rows_of(read_models_url, ledger.partners) == live
