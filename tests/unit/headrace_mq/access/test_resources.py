"""A pattern is one resource, those whose names begin alike, or all of a kind."""

import pytest

from headrace_mq.access.audit import AUDIT_TOPIC
from headrace_mq.access.resources import (
    GROUP_TOPICS,
    JOURNAL_TOPICS,
    Action,
    Ask,
    Pattern,
    ResourceKind,
    is_audit_change,
    is_open,
    owned,
)
from headrace_mq.admin import dead_letters, letter_marks
from headrace_mq.client import retry_headers
from headrace_mq.errors import InvalidArgument


@pytest.mark.parametrize(
    "text", ["cluster", "topic:orders", "topic:orders.*", "topic:*", "group:g", "group:*"]
)
def test_a_pattern_reads_as_it_is_written(text: str) -> None:
    assert str(Pattern.parse(text)) == text


@pytest.mark.parametrize(
    "text", ["", "*", "topic", "topic:", "queue:a", "cluster:a", "group:" + "x" * 300]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        Pattern.parse(text)


def test_a_prefix_covers_names_that_begin_so_and_a_literal_covers_itself() -> None:
    some = Pattern.parse("topic:a.*")
    assert some.covers(ResourceKind.TOPIC, "a.b")
    assert not some.covers(ResourceKind.TOPIC, "a")
    assert not some.covers(ResourceKind.GROUP, "a.b")
    assert not Pattern.parse("topic:a").covers(ResourceKind.TOPIC, "a.b")
    assert Pattern.parse("topic:*").covers(ResourceKind.TOPIC, "")
    assert not some.covers(ResourceKind.TOPIC, "")


@pytest.mark.parametrize(
    ("action", "asked"),
    [
        (Action.PUBLISH, Action.CONSUME), (Action.CREATE, Action.CONSUME),
        (Action.READ, Action.READ), (Action.DELETE, Action.DELETE),
    ],
)  # fmt: skip
def test_the_topics_of_a_group_are_asked_for_as_the_group(action: Action, asked: Action) -> None:
    assert owned(Ask(action, ResourceKind.TOPIC, "%RETRY%tellers")) == Ask(
        asked, ResourceKind.GROUP, "tellers"
    )


@pytest.mark.parametrize("name", ["orders", "%RETRY%", "%SCHEDULE%", "RETRY%a"])
def test_other_topics_stay_topics(name: str) -> None:
    ask = Ask(Action.PUBLISH, ResourceKind.TOPIC, name)
    assert owned(ask) == ask


def test_every_kind_of_topic_that_groups_make_is_known() -> None:
    made = {
        retry_headers.RETRY_PREFIX, retry_headers.DEAD_LETTER_PREFIX,
        letter_marks._PREFIX, dead_letters._RESENT_PREFIX,
    }  # fmt: skip
    assert set(GROUP_TOPICS) == made


def test_a_question_reads_as_a_rule_does() -> None:
    assert str(Ask(Action.READ, ResourceKind.TOPIC)) == "read topic:*"
    assert str(Ask(Action.ADMINISTER, ResourceKind.CLUSTER)) == "administer cluster"


def test_the_audit_is_read_as_the_cluster_is_and_changed_by_no_one() -> None:
    def of(action: Action) -> Ask:
        return Ask(action, ResourceKind.TOPIC, AUDIT_TOPIC)

    assert owned(of(Action.CONSUME)) == Ask(Action.READ, ResourceKind.CLUSTER)
    assert owned(of(Action.READ)) == of(Action.READ)
    changes = {action for action in Action if is_audit_change(of(action))}
    assert changes == set(Action) - {Action.READ, Action.CONSUME}
    assert not is_audit_change(Ask(Action.PUBLISH, ResourceKind.TOPIC, "orders"))


def test_to_look_for_topics_of_the_broker_is_open_to_each_user_and_for_other_resources_is_not() -> (
    None
):
    def open_to_all(kind: ResourceKind, name: str) -> set[Action]:
        return {action for action in Action if is_open(Ask(action, kind, name))}

    assert open_to_all(ResourceKind.TOPIC, AUDIT_TOPIC) == {Action.READ}
    for name in JOURNAL_TOPICS:
        assert open_to_all(ResourceKind.TOPIC, name) == {Action.READ, Action.CREATE}
        assert open_to_all(ResourceKind.GROUP, name) == set()
    assert open_to_all(ResourceKind.GROUP, AUDIT_TOPIC) == set()
    assert open_to_all(ResourceKind.TOPIC, "orders") == set()
