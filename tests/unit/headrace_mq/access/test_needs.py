"""Every request code has an action and a resource."""

import pytest

from headrace_mq.access.needs import NEEDS
from headrace_mq.access.resources import Ask
from headrace_mq.protocol.bodies import (
    Body,
    CreateTopic,
    DescribeTopics,
    GetOffsets,
    Heartbeat,
    JoinGroup,
    QueueRanges,
    encode,
)
from headrace_mq.protocol.codes import RequestCode

PUSHED_FROM = 128
OPEN = {RequestCode.HELLO, RequestCode.LOGIN}
ASKED_BY_THEIR_HANDLERS = {
    RequestCode.PRODUCE, RequestCode.FETCH, RequestCode.FIND_MESSAGES, RequestCode.SET_PASSWORD,
    RequestCode.EXPLAIN_ACCESS,
}  # fmt: skip


def asked(code: RequestCode, body: Body | None = None, *, queues: int = 0) -> list[str]:
    asks = NEEDS[code].asks
    assert asks is not None
    found: list[Ask] = list(
        asks(memoryview(b"" if body is None else encode(body)), lambda _: queues)
    )
    return [str(ask) for ask in found]


def test_every_request_code_has_an_action() -> None:
    assert set(NEEDS) == {code for code in RequestCode if code < PUSHED_FROM}


def test_nothing_but_the_handshake_is_served_before_the_login() -> None:
    assert {code for code, need in NEEDS.items() if need.before_login} == OPEN
    assert {code for code, need in NEEDS.items() if need.asks is None} == ASKED_BY_THEIR_HANDLERS


@pytest.mark.parametrize(
    ("code", "body", "queues", "needs"),
    [
        (RequestCode.HEARTBEAT, Heartbeat(), 0, []),
        (RequestCode.HEARTBEAT, Heartbeat("g", "m"), 0, ["consume group:g"]),
        (RequestCode.JOIN_GROUP, JoinGroup("g", "m", ["a", "a", "b"]), 0,
         ["consume group:g", "consume topic:a", "consume topic:b"]),
        (RequestCode.CREATE_TOPIC, CreateTopic("a", 4), 0, ["create topic:a"]),
        (RequestCode.CREATE_TOPIC, CreateTopic("a", 4), 4, ["read topic:a"]),
        (RequestCode.CREATE_TOPIC, CreateTopic("a", 8), 4, ["update topic:a"]),
        (RequestCode.DESCRIBE_TOPICS, DescribeTopics(), 0, ["read topic:*"]),
        (RequestCode.DESCRIBE_TOPICS, DescribeTopics(["a"]), 0, ["read topic:a"]),
        (RequestCode.DESCRIBE_TOPICS, DescribeTopics(["a"], create_missing=True), 0, ["create topic:a"]),
        (RequestCode.DESCRIBE_TOPICS, DescribeTopics(["a"], create_missing=True), 4, ["read topic:a"]),
        (RequestCode.QUEUE_RANGES, QueueRanges(["a", "b"]), 0, ["read topic:a", "read topic:b"]),
        (RequestCode.GET_OFFSETS, GetOffsets("g", ["a"]), 0, ["read group:g"]),
        (RequestCode.SET_QUOTA, None, 0, ["administer cluster"]),
        (RequestCode.LIST_GROUPS, None, 0, ["read group:*"]),
        (RequestCode.CANCEL_SCHEDULED, None, 0, ["delete topic:%SCHEDULE%"]),
    ],
)  # fmt: skip
def test_a_request_asks_for_the_resources_that_it_names(
    code: RequestCode, body: Body | None, queues: int, needs: list[str]
) -> None:
    assert asked(code, body, queues=queues) == needs


def test_the_table_says_in_words_what_a_request_needs() -> None:
    assert all(need.text for need in NEEDS.values())
