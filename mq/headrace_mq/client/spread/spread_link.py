"""
The link of a client whose address names several broker groups: one connection to each of them.

    Producer, Consumer, AdminClient ─▶ SpreadLink ─┬▶ Link to g1
                                                   └▶ Link to g2

A request about queues goes to the groups that have them (`answers`); what has one place goes to the first group. What a
group that is away has waits, and the rest goes on.

Used by clients, by way of `link_to`.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from headrace_mq._net.address import BrokerAddress, unreachable
from headrace_mq._net.client_connection import Answer
from headrace_mq._net.link import Link, LinkSettings
from headrace_mq._runtime.log import get_logger
from headrace_mq.client.spread.answers import Answers
from headrace_mq.client.spread.group_views import GroupViews
from headrace_mq.client.spread.topic_map import TopicMap
from headrace_mq.errors import (
    BrokerError,
    Closed,
    ConnectionLost,
    MessageQueueError,
    NotLeader,
    ReplyUndeliverable,
    RequestTimeout,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import read_header
from headrace_mq.protocol.bodies import (
    CreateTopic,
    DescribeTopics,
    Fetch,
    GroupChanged,
    TopicsAnswer,
    decode,
    encode,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import Frame

__all__ = ["SpreadLink", "link_to"]

# A client that has reached one group waits so long for the others when it starts.
OTHERS_MS_MAX: Final = 1_000
# A group that is back says within this time which queues it has, or is asked again.
HEARD_MS_MAX: Final = 10_000
# Replies on their way that may have to go over another group; each is kept until the broker has confirmed it.
REPLIES_MAX: Final = 1_024

_log = get_logger(__name__)


def _ignore(*_: object) -> None:
    return None


def link_to(
    address: str,
    *,
    client_id: str,
    settings: LinkSettings,
    on_push: Callable[[Frame], None] = _ignore,
    on_ready: Callable[[], None] = _ignore,
    on_down: Callable[[], None] = _ignore,
    patient: bool = False,
) -> Link:
    """Returns the link of a client, to one broker group or to all that the address names. Arguments as of `SpreadLink`.

    Raises:
        ValueError: it is no address.
    """
    link = partial(SpreadLink, patient=patient)
    kind = link if len(BrokerAddress.parse(address).groups) > 1 else Link
    return kind(
        address,
        client_id=client_id,
        settings=settings,
        on_push=on_push,
        on_ready=on_ready,
        on_down=on_down,
    )


class SpreadLink(Link):
    """Links to several broker groups that look like one.

    Args:
        address: names the groups.
        client_id: the same in all groups.
        settings: how each connection is kept.
        on_push: takes what any group sends unasked.
        on_ready: called when one of them can be written to.
        on_down: called when the connection to one of them ended.
        patient: questions are answered without the groups that are away: for consumers, which ask again.

    Attributes:
        connections: how many all of them have had.
    """

    def __init__(
        self,
        address: str,
        *,
        client_id: str,
        settings: LinkSettings,
        on_push: Callable[[Frame], None] = _ignore,
        on_ready: Callable[[], None] = _ignore,
        on_down: Callable[[], None] = _ignore,
        patient: bool = False,
    ) -> None:
        parts = BrokerAddress.parse(address).of_each_group()
        # Of this one, no connection is ever made: it is many.
        super().__init__(
            str(next(iter(parts.values()))),
            client_id=client_id,
            settings=settings,
            on_push=on_push,
            on_ready=on_ready,
            on_down=on_down,
        )
        self.address = address
        self._links = {
            group: Link(
                str(part),
                client_id=client_id,
                settings=settings,
                on_push=partial(self._pushed, group),
                on_ready=partial(self._one_ready, group),
                on_down=on_down,
            )
            for group, part in parts.items()
        }
        self._map = TopicMap(list(parts))
        self._views = GroupViews()
        self._answers = Answers(self._links, self._map, self._views, patient=patient)
        self._some_up = asyncio.Event()
        self._is_closed = False
        # Of each group, the connection over which its word is good; and what hears it again.
        self._heard_over: dict[str, int] = {}
        self._hearing: dict[str, asyncio.Task[None]] = {}
        self._replies = 0

    async def start(self, timeout_ms: int) -> None:
        """Connects to all groups; returns when one answers, and the others have had a moment.

        Raises:
            ConnectionLost: no group answered in time.
            UnsupportedVersion, LoginFailed: a group refuses this client.
        """
        for link in self._links.values():
            link.begin()
        tasks = {
            asyncio.create_task(link.reached(timeout_ms)): link for link in self._links.values()
        }
        try:
            left = set(tasks)
            while left and not self.is_up:
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                _raise_refusal(done)
            if left:
                done, left = await asyncio.wait(left, timeout=OTHERS_MS_MAX / 1_000)
                _raise_refusal(done)
            self._require_one()
        except BaseException:
            await self.aclose()
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _require_one(self) -> None:
        if not self.is_up:
            raise unreachable(self.address, self.last_error)

    async def aclose(self) -> None:
        """Closes all connections."""
        self._is_closed = True
        self._some_up.set()
        hearing = list(self._hearing.values())
        for task in hearing:
            task.cancel()
        await asyncio.gather(*hearing, return_exceptions=True)
        self._answers.close()
        await asyncio.gather(*(link.aclose() for link in self._links.values()))

    @property
    def last_error(self) -> Exception | None:
        """Why the last attempt to connect to one of the groups failed."""
        return next((link.last_error for link in self._links.values() if link.last_error), None)

    @property
    def is_up(self) -> bool:
        """Whether a connection to one of the groups stands."""
        return any(link.is_up for link in self._links.values())

    @property
    def is_ready(self) -> bool:
        """Whether a request to one of the groups is written without filling memory."""
        return any(link.is_ready for link in self._links.values())

    def owner(self, queue: QueueRef) -> str | None:
        """The group that has a queue; None: none that is known."""
        with suppress(BrokerError):  # told where the topic is described
            return self._map.owner(queue)
        return None

    def writer(self, queue: QueueRef) -> str | None:
        """The group to send a queue's messages to; None: not known, or it has still to say that it has the queue.

        A group that comes back with an empty disk would make a whole topic of the first message.
        """
        owner = self.owner(queue)
        if owner is None or not self._map.is_doubted(owner, queue.topic):
            return owner
        if owner not in self._hearing and self._links[owner].is_up and not self._is_closed:
            task = asyncio.create_task(self._hear(owner), name=f"topics of {owner}")
            self._hearing[owner] = task
            task.add_done_callback(lambda _: self._hearing.pop(owner))
        return None

    async def _hear(self, group: str) -> None:
        topics = self._map.doubted(group)
        try:
            body = encode(DescribeTopics(topics))
            answer = await self._links[group].request(
                RequestCode.DESCRIBE_TOPICS, body, timeout_ms=HEARD_MS_MAX
            )
            self._map.hear(group, topics, decode(TopicsAnswer, answer).topics)
        except MessageQueueError as error:
            _log.warning("a group did not say which queues it has", group=group, reason=str(error))

    def require_served(self, queue: QueueRef) -> None:
        """Returns if no group has a queue that an answer lacks; raises NotLeader if one has it, or may have it."""
        owner = self.owner(queue)
        if owner is None and queue.queue_id not in self._map.unowned(queue.topic):
            return
        for group, link in self._links.items():
            if not link.is_up and owner in {None, group}:
                raise NotLeader(
                    f"broker group {group} does not answer, and it is needed for queue {queue.topic}/{queue.queue_id}; start its"
                    f" brokers, or look at its address in the name servers ({link.last_error or 'it was connected before'})"
                )
        named = owner or f"that has it, of {', '.join(self._links)},"
        raise NotLeader(
            f"broker group {named} refused to tell of queue {queue.topic}/{queue.queue_id}, or did not answer in time; try again,"
            " and look at its log"
        )

    def serves(self, queue: QueueRef) -> bool:
        """Whether the group that has a queue is connected, and was not set aside for what it refused."""
        owner = self.owner(queue)
        return owner is not None and self._answers.serves(owner)

    async def require_first(self, topic: str) -> None:
        """As of `Link`. Raises InvalidArgument: another group than the first one has the topic, or a part of it."""
        await self._answers.require_first(topic)

    def submit(
        self,
        code: int,
        *parts: bytes | bytearray,
        receive: Callable[[Answer], None],
        at_once: bool = False,
    ) -> None:
        """As of `Link`; all that one request names is in one group."""
        self._place_of(code, parts[0]).submit(code, *parts, receive=receive, at_once=at_once)

    def tell(self, code: int, body: bytes | bytearray) -> bool:
        """As of `Link`; a reply goes over one connection after the other, until one reaches its receiver."""
        if code == RequestCode.REPLY:
            return self._replies < REPLIES_MAX and self._pass_on(body, list(self._links.values()))
        try:
            return self._place_of(code, body).tell(code, body)
        except ConnectionLost:
            return False

    def _pass_on(self, body: bytes | bytearray, links: list[Link]) -> bool:
        """Sends a reply over the first of these that takes it; the others get it if that is in vain."""
        for place, link in enumerate(links):
            if link.is_ready:
                left = links[place + 1 :]
                link.submit(RequestCode.REPLY, body, receive=partial(self._passed_on, body, left))
                self._replies += 1
                return True
        return False

    def _passed_on(self, body: bytes | bytearray, left: list[Link], answer: Answer) -> None:
        self._replies -= 1
        if isinstance(answer, ReplyUndeliverable | ConnectionLost):
            # Its receiver may have lost its connection to this group alone.
            self._pass_on(body, left)

    def drop(self, reason: str) -> None:
        """Ends the connections over which answers are late; all of them, if none is."""
        late = [self._links[group] for group in self._answers.late]
        self._answers.late.clear()
        for link in late or self._links.values():
            link.drop(reason)

    def _too_late(self, timeout_ms: int) -> RequestTimeout:
        late = ", ".join(sorted(self._answers.late)) or ", ".join(self._links)
        return RequestTimeout(f"no answer from broker group {late} within {timeout_ms} ms")

    async def _exchange(
        self,
        code: int,
        *parts: bytes | bytearray,
        at_once: bool = False,  # noqa: ARG002 - several requests are of no use in one packet
    ) -> memoryview:
        while not self.is_up:
            if self._is_closed:
                raise Closed(f"the connection to {self.address} was closed")
            self._some_up.clear()
            await self._some_up.wait()
        return await self._answers.answer(RequestCode(code), b"".join(parts))

    def _place_of(self, code: int, body: bytes | bytearray) -> Link:
        """The link to the group that what is named belongs to. Raises ConnectionLost: it is away, or not known."""
        if code == RequestCode.PRODUCE:
            queue = read_header(memoryview(body)).queue
            if self.owner(queue) is not None and self.writer(queue) is None:
                raise ConnectionLost(
                    f"broker group {self.owner(queue)} has still to say that it has queue {queue.topic}/{queue.queue_id}"
                )
        elif code == RequestCode.FETCH:
            asked = decode(Fetch, body).queues[0]
            queue = QueueRef(asked.topic, asked.queue_id)
        elif code == RequestCode.CREATE_TOPIC:
            queue = QueueRef(decode(CreateTopic, body).topic, 0)
            if self._map.is_spread(queue.topic):
                # One group would make all of it, if it had lost its part.
                raise ConnectionLost(f"topic {queue.topic!r} is spread, and no group makes it")
        else:
            return next(iter(self._links.values()))
        owner = self.owner(queue)
        if owner is None:
            raise ConnectionLost(
                f"queue {queue.topic}/{queue.queue_id} is in none of the groups {', '.join(self._links)} that answer"
            )
        return self._links[owner]

    def _one_ready(self, group: str) -> None:
        now = self._links[group].connections
        if self._heard_over.get(group) != now:
            self._heard_over[group] = now
            self._map.doubt(group)
        links = [link for link in self._links.values() if link.frame_bytes_max]
        self.frame_bytes_max = min((link.frame_bytes_max for link in links), default=0)
        self.connections = sum(link.connections for link in self._links.values())
        self._some_up.set()
        self._on_ready()

    def _pushed(self, group: str, frame: Frame) -> None:
        if frame.code == RequestCode.PUSHED_GROUP_CHANGE:
            change = self._views.pushed(group, decode(GroupChanged, frame.body))
            if change is None:
                return
            frame = frame._replace(body=memoryview(encode(change)))
        self._on_push(frame)


def _raise_refusal(done: set[asyncio.Task[None]]) -> None:
    for task in done:
        error = task.exception()
        if isinstance(error, BrokerError) and not error.retriable:
            raise error
