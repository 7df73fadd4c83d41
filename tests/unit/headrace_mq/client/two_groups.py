"""Two broker groups whose answers a test writes: topic t has queues 0 and 1 in g1, and 2 and 3 in g2."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace_mq._net.link import LinkSettings
from headrace_mq.client.spread import spread_link
from headrace_mq.client.spread.spread_link import SpreadLink
from headrace_mq.errors import ConnectionLost
from headrace_mq.protocol.bodies import (
    Body,
    DescribeTopics,
    GroupAnswer,
    GroupMember,
    JoinGroup,
    TopicDescription,
    TopicsAnswer,
    decode,
    encode,
)
from headrace_mq.protocol.codes import RequestCode

__all__ = ["ADDRESS", "ME", "FakeLink", "ask", "joined", "known", "links_of", "two_groups"]

ADDRESS = "nameserver://127.0.0.1:1/c/g1,g2"
ME = GroupMember("me", ["t"])


class FakeLink:
    """A link to a group that answers what `answers` says for a code: a body, bytes, or an error."""

    def __init__(self, address: str, **options: Any) -> None:
        self.address = address
        self.options = options
        self.is_up, self.connections, self.frame_bytes_max = True, 1, 1 << 20
        self.last_error: Exception | None = None
        self.group = address.rpartition("/")[2]
        first = 0 if self.group == "g1" else 2
        self.topics = {"t": TopicDescription("t", 4, "forever", [], [], [first, first + 1])}
        self.answers: dict[RequestCode, Any] = {}
        self.asked: list[tuple[RequestCode, bytes]] = []
        self.submitted: list[tuple[int, tuple[bytes, ...], Callable[[Any], None]]] = []
        self.told: list[int] = []
        self.closed = self.began = False
        self.dropped = ""

    @property
    def is_ready(self) -> bool:
        return self.is_up

    def begin(self) -> None:
        self.began = True

    async def reached(self, timeout_ms: int) -> None:
        if not self.is_up:
            raise ConnectionLost("away")

    async def aclose(self) -> None:
        self.closed = True

    def drop(self, reason: str) -> None:
        self.dropped = reason

    def submit(
        self, code: int, *parts: bytes, receive: Callable[[Any], None], at_once: bool = False
    ) -> None:
        if not self.is_up:
            raise ConnectionLost("away")
        self.submitted.append((code, parts, receive))

    def tell(self, code: int, body: bytes) -> bool:
        if self.is_up:
            self.told.append(code)
        return self.is_up

    async def request(self, code: RequestCode, body: bytes, *, timeout_ms: int) -> memoryview:
        self.asked.append((code, body))
        answer = self.answers.get(code)
        if answer is None and code == RequestCode.DESCRIBE_TOPICS:
            named = decode(DescribeTopics, body).topics or list(self.topics)
            answer = TopicsAnswer([self.topics[name] for name in named if name in self.topics])
        if callable(answer):
            answer = answer(body)
        if isinstance(answer, Exception):
            raise answer
        return memoryview(encode(answer) if isinstance(answer, Body) else answer or b"")

    def bodies(self, code: RequestCode) -> list[bytes]:
        """What it was asked with a code."""
        return [body for each, body in self.asked if each == code]


def links_of(link: SpreadLink) -> tuple[FakeLink, FakeLink]:
    """The links to g1 and g2."""
    one, two = link._links.values()
    return one, two  # type: ignore[return-value]  # the test has put them there


async def ask(link: SpreadLink, code: RequestCode, body: Body) -> memoryview:
    """Sends one request."""
    return await link.request(code, encode(body), timeout_ms=60_000)


async def known(link: SpreadLink) -> tuple[FakeLink, FakeLink]:
    """Lets the link look where topic t is."""
    await ask(link, RequestCode.DESCRIBE_TOPICS, DescribeTopics(["t"]))
    return links_of(link)


async def joined(link: SpreadLink) -> tuple[FakeLink, FakeLink]:
    """Joins group g in both groups."""
    one, two = await known(link)
    for each, generation in ((one, 5), (two, 9)):
        each.answers[RequestCode.JOIN_GROUP] = GroupAnswer(generation, [ME])
        each.answers[RequestCode.HEARTBEAT] = GroupAnswer(generation, [ME])
    await ask(link, RequestCode.JOIN_GROUP, JoinGroup("g", "me", ["t"]))
    return one, two


@pytest.fixture
def two_groups(monkeypatch: pytest.MonkeyPatch) -> Callable[..., SpreadLink]:
    """Makes a link to both groups."""
    monkeypatch.setattr(spread_link, "Link", FakeLink)

    def make(**options: Any) -> SpreadLink:
        return SpreadLink(ADDRESS, client_id="me", settings=LinkSettings((1, 5)), **options)

    return make
