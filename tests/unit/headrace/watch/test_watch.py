"""What watches an application: its parts, and the bounds of its settings."""

from typing import Any

import pytest

from headrace.errors import ProjectionError
from headrace.settings import Settings
from headrace.transports.base import Outgoing
from headrace.transports.local import LocalTransport
from headrace.watch.watch import Watch


async def test_the_watch_beats_only_if_asked_and_takes_bounds_from_the_settings(
    totals: Any, sqlite_models: Any, serializer: Any, domain: Any
) -> None:
    transport = LocalTransport()
    await transport.ensure_topic(domain.topic, queues=1, forever=True)
    await sqlite_models.ensure(totals)

    def watch(**changes: Any) -> Watch:
        return Watch(
            app_name="shop",
            projections={"totals": totals},
            read_models=sqlite_models,
            transport=transport,
            serializer=serializer,
            settings=Settings(**changes),
        )

    assert [name for name, _ in watch().parts] == ["alarms"]
    assert [name for name, _ in watch(heartbeat_ms=1_000).parts] == ["alarms", "heartbeat"]
    await transport.publish(Outgoing(topic=domain.topic, key="a", body=b""))
    await watch().check_lag()
    with pytest.raises(ProjectionError, match="totals is 1 messages"):
        await watch(lag_messages_max=0).check_lag()
