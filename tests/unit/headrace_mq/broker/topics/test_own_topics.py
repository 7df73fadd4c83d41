"""What clients may not do to the broker's own topics."""

import pytest

from headrace_mq.access.audit import AUDIT_TOPIC
from headrace_mq.broker.topics.kept import KeptTopic
from headrace_mq.broker.topics.own_topics import (
    JOURNALS,
    audit_topic,
    frozen_error,
    refuse_create,
    refuse_delete,
    refuse_freeze,
)
from headrace_mq.errors import InvalidArgument, NotPermitted, QueueFrozen, TopicInUse
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import CreateTopic


def test_the_audit_has_a_closed_queue_for_each_kind_and_keeps_its_retention() -> None:
    made = audit_topic(None, "compact")
    assert made == KeptTopic(4, "compact", unwritable=(0, 1, 2, 3))
    # One of an earlier version has fewer kinds.
    earlier = KeptTopic(3, "transient", unwritable=(0, 1, 2))
    assert audit_topic(earlier, "compact") == KeptTopic(4, "transient", unwritable=(0, 1, 2, 3))


def test_a_message_to_the_audit_is_not_permitted_and_one_to_a_frozen_queue_may_go_elsewhere() -> (
    None
):
    assert isinstance(frozen_error(QueueRef(AUDIT_TOPIC, 0)), NotPermitted)
    assert isinstance(frozen_error(QueueRef("orders", 0)), QueueFrozen)


def test_clients_neither_make_nor_grow_nor_freeze_nor_delete_the_audit() -> None:
    kept = audit_topic(None, "compact")
    for wish, known in ((CreateTopic(AUDIT_TOPIC, 1), None), (CreateTopic(AUDIT_TOPIC, 5), kept)):
        with pytest.raises(NotPermitted, match="the broker alone changes it"):
            refuse_create(wish, known)
    refuse_create(CreateTopic(AUDIT_TOPIC, 0, "compact"), kept)
    for refuse in (refuse_freeze, refuse_delete):
        with pytest.raises(NotPermitted):
            refuse(AUDIT_TOPIC)
        refuse("orders")


@pytest.mark.parametrize("topic", JOURNALS)
def test_a_journal_has_one_queue_is_transient_and_stays(topic: str) -> None:
    refuse_create(CreateTopic(topic, 1), None)
    with pytest.raises(InvalidArgument, match="one queue"):
        refuse_create(CreateTopic(topic, 2), None)
    with pytest.raises(TopicInUse):
        refuse_delete(topic)
    refuse_freeze(topic)
