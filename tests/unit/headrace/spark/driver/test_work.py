"""What there is to read for a rebuild, and what is said where it is not there."""

from typing import Any

import pytest

from headrace.errors import ProjectionError
from headrace.spark.driver import work as work_module
from headrace.spark.rebuild import rebuild
from headrace_mq.errors import ConnectionLost


async def test_a_broker_that_is_not_there_is_a_projection_error(
    ledger: Any, live: Any, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_of: object, **_known: object) -> None:
        raise ConnectionLost("no broker answers at 127.0.0.1:1")

    monkeypatch.setattr(work_module, "fetch_ranges", unreachable)
    with pytest.raises(ProjectionError, match="accounts: no broker answers at 127"):
        await rebuild(
            ledger.path, "accounts", broker=live.broker, read_models_url=live.url, spark=spark
        )


async def test_live_offsets_beyond_the_topic_are_refused(
    ledger: Any, live: Any, topic: Any, spark: Any
) -> None:
    await rebuild(
        ledger.path,
        "accounts",
        broker=live.broker,
        read_models_url=live.url,
        spark=spark,
        verify=False,
    )
    for messages in topic.bodies.values():
        messages.clear()
    with pytest.raises(ProjectionError, match="startingOffsets asks for offset"):
        await rebuild(
            ledger.path, "accounts", broker=live.broker, read_models_url=live.url, spark=spark,
            start="offsets",
        )  # fmt: skip
