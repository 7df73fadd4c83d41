from typing import Any

import pytest

from headrace_mq.broker.handlers import admin as finding
from headrace_mq.broker.topics.topics import Topics
from headrace_mq.client.group import membership
from headrace_mq.client.group.rebalance import allocate
from headrace_mq.testing.conformance.administration import AdminConformance
from headrace_mq.testing.conformance.deployment import EmbeddedDeployment

promises = AdminConformance()


async def test_a_deleted_topic_whose_messages_come_back_is_noticed(
    deployment: EmbeddedDeployment, noticed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = Topics.delete
    monkeypatch.setattr(
        Topics, "delete", lambda known, topic, keep, _: delete(known, topic, keep, {})
    )
    with noticed():
        await promises.test_a_topic_goes_when_nobody_needs_it_and_its_ids_are_not_given_again(
            deployment
        )


async def test_a_member_that_takes_frozen_queues_is_noticed(
    deployment: EmbeddedDeployment, noticed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def allocate_all(member: str, *, frozen: Any, **known: Any) -> Any:
        return allocate(member, **known)

    monkeypatch.setattr(membership, "allocate", allocate_all)
    with noticed():
        await promises.test_members_leave_queues_alone_that_are_frozen_for_reading(deployment)


async def test_a_search_that_finds_too_much_is_noticed(
    deployment: EmbeddedDeployment, noticed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = finding.LookupQuery
    monkeypatch.setattr(
        finding, "LookupQuery", lambda topic, key, _, to_ms: wanted(topic, key, 0, to_ms)
    )
    with noticed():
        await promises.test_messages_are_found_by_key_time_and_id(deployment)
