from typing import Any

import pytest

from headrace_mq.broker.groups.offsets import Offsets
from headrace_mq.broker.state import BrokerState
from headrace_mq.client.fetch.fetcher import Fetcher
from headrace_mq.testing.conformance.consumer import ConsumerConformance
from headrace_mq.testing.conformance.deployment import EmbeddedDeployment

promises = ConsumerConformance()


@pytest.mark.parametrize(
    ("owner", "name", "defect", "promise"),
    [
        (
            Offsets,
            "get",
            lambda offsets, group, queue: -1,
            promises.test_a_group_goes_on_where_it_committed,
        ),
        (
            BrokerState,
            "offset_at",
            lambda state, queue, time_ms: 0,
            promises.test_a_group_begins_where_it_is_told,
        ),
    ],
    ids=["offsets", "times"],
)
async def test_a_broker_that_forgets_is_noticed(
    deployment: EmbeddedDeployment,
    noticed: Any,
    monkeypatch: pytest.MonkeyPatch,
    owner: type[Any],
    name: str,
    defect: Any,
    promise: Any,
) -> None:
    monkeypatch.setattr(owner, name, defect)
    with noticed():
        await promise(deployment)


async def test_records_that_come_twice_are_noticed(
    deployment: EmbeddedDeployment, noticed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Fetcher._take_batch

    def take_twice(pulling: Fetcher, asked: Any, batch: memoryview) -> int:
        taken = take(pulling, asked, batch)
        for share in asked.values():
            share.ready *= 2
        return taken

    monkeypatch.setattr(Fetcher, "_take_batch", take_twice)
    with noticed():
        await promises.test_every_group_receives_everything_once(deployment)
