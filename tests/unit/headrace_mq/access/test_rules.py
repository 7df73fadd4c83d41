"""A rule decides about its own action and resources, and what may be done to a thing implies to read it."""

import pytest

from headrace_mq.access.resources import Action, Ask, ResourceKind
from headrace_mq.access.rules import Rule
from headrace_mq.errors import InvalidArgument


def rule(text: str) -> Rule:
    word, subject, action, resource = text.split()
    return Rule.parse(subject, action, resource, allows=word == "allow")


@pytest.mark.parametrize("text", ["allow ann publish topic:a*", "deny role:guests * cluster"])
def test_a_rule_reads_as_it_is_written(text: str) -> None:
    assert str(rule(text)) == text


@pytest.mark.parametrize(
    "text", ["allow ann write topic:a", "allow ann read everything", "allow role: read cluster"]
)
def test_words_without_a_meaning_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        rule(text)


def test_to_allow_an_action_allows_to_read_and_to_deny_it_does_not_deny_to_read() -> None:
    read = Ask(Action.READ, ResourceKind.TOPIC, "a")
    assert rule("allow ann publish topic:a").decides(read)
    assert not rule("deny ann publish topic:a").decides(read)
    assert rule("deny ann read topic:a").decides(read)
    assert not rule("allow ann publish topic:a").decides(
        Ask(Action.CONSUME, ResourceKind.TOPIC, "a")
    )


def test_to_deny_a_part_is_to_deny_the_whole() -> None:
    every = Ask(Action.READ, ResourceKind.TOPIC)
    assert rule("deny ann read topic:a").decides(every)
    assert not rule("allow ann read topic:a").decides(every)
    assert not rule("deny ann read group:a").decides(every)


def test_allow_and_deny_of_the_same_replace_each_other() -> None:
    assert rule("allow ann read topic:a").key == rule("deny ann read topic:a").key
