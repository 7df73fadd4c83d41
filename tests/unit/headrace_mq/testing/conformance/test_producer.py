"""The suite is worth something only if it catches a broker that breaks a promise."""

from typing import Any

import pytest

from headrace_mq.broker.peers.producers import Producers
from headrace_mq.broker.topics.topics import Topics
from headrace_mq.store.log.queues import Queues
from headrace_mq.testing.conformance.deployment import EmbeddedDeployment
from headrace_mq.testing.conformance.producer import ProducerConformance
from headrace_mq.testing.simulated_disk import MountedFiles

promises = ProducerConformance()


@pytest.mark.parametrize(
    ("owner", "name", "defect", "promise"),
    [
        (
            Queues,
            "duplicate_of",
            lambda *_: None,
            promises.test_a_batch_that_is_sent_again_is_stored_once,
        ),
        (Producers, "describe", lambda *_: [], promises.test_what_was_sent_is_received_whole),
        (
            Topics,
            "for_append",
            lambda topics, queue: topics._of(queue).retention,
            promises.test_a_queue_frozen_for_writing_is_avoided,
        ),
        (
            MountedFiles,
            "sync",
            lambda *_: 20,
            promises.test_what_was_acknowledged_survives_a_crash,
        ),
    ],
    ids=["repeats", "senders", "freezes", "syncs"],
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
    await promise(deployment)
    monkeypatch.setattr(owner, name, defect)
    with noticed():
        await promise(deployment)
