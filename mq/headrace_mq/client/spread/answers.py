"""
Answers a request as one broker would that has the queues of several broker groups.

    about topics         asked of the groups that have them, the answers put together
    about queues         divided by the group of each queue
    joins, heartbeats    asked of all groups; the members are those of `group_views`
    about the rest       asked of the first group, or refused where it is about one broker

Used by `spread_link`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from headrace_mq._net.link import Link
from headrace_mq.client.spread.group_views import GroupViews
from headrace_mq.client.spread.loss_count import LossCount
from headrace_mq.client.spread.merge import (
    MERGED,
    by_owner,
    fetched,
    is_empty,
    one_group,
    page_of_groups,
)
from headrace_mq.client.spread.parts import Parts
from headrace_mq.client.spread.topic_map import TopicMap
from headrace_mq.errors import (
    ConnectionLost,
    GroupNotFound,
    InvalidArgument,
    MessageQueueError,
    NotGroupMember,
    NotLeader,
    QueueNotFound,
    ReplyUndeliverable,
    TopicInUse,
    TopicNotFound,
)
from headrace_mq.protocol.administration import (
    DeleteQueues,
    FreezeQueues,
    GroupDescription,
    GroupsAnswer,
    QueueDeletion,
    QueueDeletions,
)
from headrace_mq.protocol.bodies import (
    CommitOffsets,
    CreateTopic,
    DescribeTopics,
    Fetch,
    GroupAnswer,
    Heartbeat,
    JoinGroup,
    LockQueues,
    LocksAnswer,
    QueueName,
    QueueRangesAnswer,
    TopicsAnswer,
    UnlockQueues,
    decode,
    encode,
)
from headrace_mq.protocol.codes import RequestCode

__all__ = ["Answers"]


class Answers:
    """The requests of one client to all of its broker groups.

    Args:
        links: by the name of the group, in the order of the address.
        topics: where queues are; filled here.
        views: of the consumer group; filled here.
        patient: a question about topics is answered without the groups that are away, refuse or are late.

    Attributes:
        late: the groups whose answers are waited for.
    """

    def __init__(
        self,
        links: Mapping[str, Link],
        topics: TopicMap,
        views: GroupViews,
        *,
        patient: bool = False,
    ) -> None:
        self._links = links
        self._patient = patient
        self._map = topics
        self._views = views
        self._losses = LossCount()
        self._parts = Parts(links, patient=patient)
        self.late = self._parts.late
        # With which the member joined last.
        self._joining = b""
        self._answers: dict[RequestCode, Callable[[bytes], Awaitable[bytes | memoryview]]] = {
            RequestCode.DESCRIBE_TOPICS: self._describe,
            RequestCode.CREATE_TOPIC: self._create,
            RequestCode.FETCH: self._fetch,
            RequestCode.LOCK_QUEUES: self._lock,
            RequestCode.UNLOCK_QUEUES: self._unlock,
            RequestCode.COMMIT_OFFSETS: self._commit,
            RequestCode.JOIN_GROUP: self._join,
            RequestCode.HEARTBEAT: self._beat,
            RequestCode.LEAVE_GROUP: self._leave,
            RequestCode.REPLY: self._reply,
            RequestCode.FREEZE_QUEUES: self._freeze,
            RequestCode.DELETE_QUEUES: self._delete,
            RequestCode.LIST_GROUPS: self._list_groups,
            RequestCode.DESCRIBE_GROUP: self._describe_group,
            RequestCode.SET_GROUP: partial(self._everywhere, RequestCode.SET_GROUP),
            RequestCode.CANCEL_SCHEDULED: partial(self._first, RequestCode.CANCEL_SCHEDULED),
            RequestCode.DESCRIBE_BROKER: partial(self._first, RequestCode.DESCRIBE_BROKER),
        }

    async def answer(self, code: RequestCode, body: bytes) -> memoryview:
        """Returns the answer to a request.

        Args:
            code: of the request.
            body: its body.

        Raises:
            BrokerError: a group refused; NotLeader: one that is needed is away.
            ConnectionLost: a connection ended before the answer; the outcome is unknown.
        """
        if code in MERGED:
            return memoryview(await self._about_topics(code, body))
        answer = self._answers.get(code)
        if answer is None:
            raise InvalidArgument(
                f"{code.name.lower().replace('_', ' ')} is about one broker group, and the address names several"
                f" ({', '.join(self._links)}); name one of them"
            )
        return memoryview(await answer(body))

    def _require_whole(self, topic: str) -> None:
        """Raises NotLeader unless it is known which group has each queue of a topic."""
        unowned = self._map.unowned(topic)
        if unowned:
            self._parts.require(self._links)
            raise NotLeader(
                f"queue {topic}/{unowned[0]} is in none of the broker groups {', '.join(self._links)}; name all groups"
                " of the topic in the address, and look whether each of them runs"
            )

    async def _first(self, code: RequestCode, body: bytes) -> memoryview:
        first = next(iter(self._links))
        self._parts.require([first])
        return await self._parts.ask(first, code, body)

    async def _everywhere(self, code: RequestCode, body: bytes) -> memoryview:
        self._parts.require(self._links)
        answers = await self._parts.ask_up(code, body)
        return next(iter(answers.values()))

    async def _describe(self, body: bytes) -> bytes:
        asked = decode(DescribeTopics, body)
        await self._look(asked.topics)
        names = asked.topics or self._map.topics
        missing = [name for name in names if not self._map.holders(name)]
        if asked.create_missing or not self._patient:
            # One that is away may have it.
            self._parts.require(self._links if not asked.topics else self._map.places(missing))
        if missing and asked.create_missing:
            first = next(iter(self._links))
            made = encode(DescribeTopics(missing, create_missing=True))
            answer = await self._parts.ask(first, RequestCode.DESCRIBE_TOPICS, made)
            self._map.hear(first, missing, decode(TopicsAnswer, answer).topics)
        found = [self._map.merged(name) for name in dict.fromkeys(names)]
        return encode(TopicsAnswer([each for each in found if each is not None]))

    async def _look(self, topics: Sequence[str]) -> None:
        """Asks all groups that are connected which queues of the topics they have."""
        body = encode(DescribeTopics(list(topics)))
        for group, answer in (await self._parts.ask_up(RequestCode.DESCRIBE_TOPICS, body)).items():
            self._map.hear(group, topics, decode(TopicsAnswer, answer).topics)

    async def _known(self, topic: str) -> list[str]:
        """The groups that have a topic.

        Raises:
            TopicNotFound: none has it.
            NotLeader: none that answers has it, and one does not answer.
        """
        await self._look([topic])
        holders = self._map.holders(topic)
        if not holders:
            self._parts.require(self._map.places([topic]))
            raise TopicNotFound(
                f"there is no topic {topic!r} in the broker groups {', '.join(self._links)}; create it first, or correct"
                " the name"
            )
        return holders

    async def require_first(self, topic: str) -> None:
        """Raises InvalidArgument unless all queues of a topic are, or will be, in the first group."""
        if self._map.holders(topic) != list(self._links)[:1] or self._map.is_spread(topic):
            await self._look([topic])
        first = next(iter(self._links))
        holders = self._map.holders(topic)
        if holders not in ([], [first]) or self._map.is_spread(topic):
            raise InvalidArgument(
                f"messages are scheduled in broker group {first}, the first of the address, and topic {topic!r} is in"
                f" {', '.join(holders)}: schedule messages for topics of the first group"
            )
        if not holders:
            self._parts.require(self._map.places([topic]))

    async def _about_topics(self, code: RequestCode, body: bytes) -> bytes:
        kind, merge = MERGED[code]
        asked = decode(kind, body)
        topics: list[str] = list(dict.fromkeys(asked.topics))
        await self._look(topics)
        parts: dict[str, list[str]] = {}
        for topic in topics:
            holders = self._map.holders(topic) or await self._known(topic)
            self._map.merged(topic)
            here = [group for group in holders if group in self._parts.up]
            if not self._patient or not here:
                self._parts.require(holders)
            if not self._patient:
                self._require_whole(topic)
            for group in here:
                parts.setdefault(group, []).append(topic)
        bodies = {group: encode(replace(asked, topics=mine)) for group, mine in parts.items()}
        answers, failures = await self._parts.ask_each(code, bodies)
        for error in failures.values():
            if not (self._patient and answers and isinstance(error, ConnectionLost)):
                raise error
        merged = merge(list(answers.values()))
        if code == RequestCode.QUEUE_RANGES:
            said = {group: decode(QueueRangesAnswer, each) for group, each in answers.items()}
            return encode(self._losses.stamped(said, decode(QueueRangesAnswer, merged)))
        return merged

    async def _create(self, body: bytes) -> bytes:
        asked = decode(CreateTopic, body)
        if asked.owned:
            raise InvalidArgument(
                "say which queues a group has to that group; name it alone in the address"
            )
        await self._look([asked.topic])
        holders = self._map.holders(asked.topic)
        if not holders:
            holders = self._map.places([asked.topic])
            self._parts.require(holders)
        found = self._map.merged(asked.topic)
        if found is not None and len(holders) > 1 and asked.queues <= found.queues:
            # Each of them confirms the kind of the topic; the first is as good as any that answers.
            holders = [group for group in holders if self._links[group].is_up] or holders
        self._parts.require(holders[:1])
        answer = await self._parts.ask(holders[0], RequestCode.CREATE_TOPIC, body)
        self._map.hear(holders[0], [asked.topic], decode(TopicsAnswer, answer).topics)
        made = self._map.merged(asked.topic)
        assert made is not None
        return encode(TopicsAnswer([made]))

    async def _fetch(self, body: bytes) -> bytes:
        """What one group has at once, or what all have after the time that the request may wait."""
        asked = decode(Fetch, body)
        await self._look(sorted({each.topic for each in asked.queues}))
        parts = by_owner(asked.queues, self._map)
        if "" in parts:
            self._parts.require(self._links)
            missing = parts[""][0]
            raise QueueNotFound(f"there is no queue {missing.topic}/{missing.queue_id}")
        self._parts.require(parts)
        asking = [
            asyncio.create_task(
                self._parts.ask(group, RequestCode.FETCH, encode(replace(asked, queues=mine)))
            )
            for group, mine in parts.items()
        ]
        found: list[memoryview] = []
        try:
            for next_one in asyncio.as_completed(asking):
                found.append(await next_one)
                if not is_empty(found[-1]):
                    break
        finally:
            for each in asking:
                each.cancel()
            self._parts.late.difference_update(parts)
        return fetched(found)

    async def _lock(self, body: bytes) -> bytes:
        asked = decode(LockQueues, body)
        parts = by_owner(asked.queues, self._map)
        # All of them, also for nothing: an answer says that the member's other locks there still stand.
        bodies = {
            group: encode(replace(asked, queues=parts.get(group, []))) for group in self._joined()
        }
        answers, failures = await self._parts.ask_each(RequestCode.LOCK_QUEUES, bodies)
        if answers:
            # Its other locks cannot be vouched for: the next heartbeat lets the member join the others again.
            self._parts.set_aside(failures)
        for error in failures.values():
            if not isinstance(error, ConnectionLost):
                raise error
        if not answers:
            raise ConnectionLost("no broker group has let the member in; it joins again")
        found = [decode(LocksAnswer, answer) for answer in answers.values()]
        # What was not granted is asked for again, as if another member had it.
        return encode(
            LocksAnswer(
                [lock for each in found for lock in each.locks],
                min(each.expiry_ms for each in found),
            )
        )

    async def _unlock(self, body: bytes) -> bytes:
        asked = decode(UnlockQueues, body)
        parts = by_owner(asked.queues, self._map)
        bodies = {
            group: encode(replace(asked, queues=parts[group]))
            for group in self._parts.up
            if group in parts
        }
        _, failures = await self._parts.ask_each(RequestCode.UNLOCK_QUEUES, bodies)
        for error in failures.values():
            if not isinstance(error, ConnectionLost):
                raise error
        return b""

    async def _commit(self, body: bytes) -> bytes:
        asked = decode(CommitOffsets, body)
        parts = by_owner(asked.offsets, self._map)
        bodies = {}
        for group in parts:
            if not group or group not in self._parts.up:
                continue
            generation = self._views.generation(group) if asked.member else asked.generation
            bodies[group] = encode(replace(asked, offsets=parts[group], generation=generation))
        _, failures = await self._parts.ask_each(RequestCode.COMMIT_OFFSETS, bodies)
        for error in failures.values():
            # The others' are stored; all of them are sent again.
            raise error
        away = [group for group in parts if group not in bodies]
        if away:
            raise NotLeader(
                f"offsets of {len(parts[away[0]])} queues were not stored: broker group {away[0] or 'of these'} does not"
                " answer"
            )
        return b""

    def _joined(self) -> list[str]:
        """The groups that have let the member in, over the connections that stand, and are not set aside."""
        return [group for group in self._parts.up if self._has_joined(group)]

    def _has_joined(self, group: str) -> bool:
        return self._views.has_joined(group, self._links[group].connections)

    def serves(self, group: str) -> bool:
        """Whether a group is connected, and not set aside."""
        return group in self._parts.up

    def close(self) -> None:
        """Ends what is tried with groups that were set aside."""
        self._parts.close()

    async def _join(self, body: bytes) -> bytes:
        connections = {group: self._links[group].connections for group in self._parts.up}
        answers, failures = await self._parts.ask_each(
            RequestCode.JOIN_GROUP, dict.fromkeys(connections, body)
        )
        self._require_some(answers, failures)
        self._joining = body
        self._parts.let_in(answers)
        found = {group: decode(GroupAnswer, answer) for group, answer in answers.items()}
        merged = self._views.join(
            decode(JoinGroup, body).group, found, {group: connections[group] for group in found}
        )
        return encode(merged)

    async def _beat(self, body: bytes) -> bytes:
        if not decode(Heartbeat, body).group:
            await self._parts.ask_up(RequestCode.HEARTBEAT, body)
            return encode(GroupAnswer(0, []))
        self._parts.try_again(self._joining)
        up = self._parts.up
        back = sorted(set(up).difference(self._joined()))
        if back:
            raise NotGroupMember(f"broker group {back[0]} answers again; join there, too")
        for group in self._links:
            if self._parts.is_aside(group) and self._has_joined(group):
                # Its locks end there, so none of them may count here.
                raise NotGroupMember(f"broker group {group} was set aside; join the others again")
        answers, failures = await self._parts.ask_each(
            RequestCode.HEARTBEAT, dict.fromkeys(up, body)
        )
        self._require_some(answers, failures)
        for group, answer in answers.items():
            self._views.hear(group, decode(GroupAnswer, answer))
        aside = [group for group in failures if self._parts.is_aside(group)]
        if aside:
            raise NotGroupMember(f"broker group {aside[0]} was set aside; join the others again")
        return encode(self._views.merged())

    def _require_some(
        self, answers: Mapping[str, memoryview], failures: Mapping[str, MessageQueueError]
    ) -> None:
        """Sets groups aside that failed, if another one answered; raises what concerns the member itself."""
        for error in failures.values():
            if not answers or not self._parts.may_lack(error):
                raise error
        if not answers:
            raise ConnectionLost(f"none of the broker groups {', '.join(self._links)} answers")
        self._parts.set_aside(failures)

    async def _leave(self, body: bytes) -> bytes:
        bodies = dict.fromkeys(self._joined(), body)
        _, failures = await self._parts.ask_each(RequestCode.LEAVE_GROUP, bodies)
        for error in failures.values():
            raise error
        return b""

    async def _reply(self, body: bytes) -> memoryview:
        refusal: MessageQueueError | None = None
        for group in self._parts.up:
            try:
                return await self._parts.ask(group, RequestCode.REPLY, body)
            except (ReplyUndeliverable, ConnectionLost) as error:
                # Its receiver may have lost its connection to this group alone.
                refusal = error
        raise refusal or ConnectionLost(f"none of the groups {', '.join(self._links)} answers")

    async def _freeze(self, body: bytes) -> bytes:
        asked = decode(FreezeQueues, body)
        holders = await self._known(asked.topic)
        names = [QueueName(asked.topic, number) for number in asked.queues]
        parts = by_owner(names, self._map) if names else dict.fromkeys(holders, names)
        if "" in parts or not names:
            # A group that was away since this client started may have it.
            self._require_whole(asked.topic)
        if "" in parts:
            raise QueueNotFound(
                f"topic {asked.topic!r} has no queue {parts[''][0].queue_id} in the groups {', '.join(holders)}"
            )
        self._parts.require(parts)
        for group, mine in parts.items():
            numbers = [each.queue_id for each in mine]
            part = encode(replace(asked, queues=numbers))
            answer = await self._parts.ask(group, RequestCode.FREEZE_QUEUES, part)
            self._map.hear(group, [asked.topic], decode(TopicsAnswer, answer).topics)
        frozen = self._map.merged(asked.topic)
        assert frozen is not None
        return encode(TopicsAnswer([frozen]))

    async def _delete(self, body: bytes) -> bytes:
        asked = decode(DeleteQueues, body)
        holders = await self._known(asked.topic)
        self._parts.require(holders)
        self._require_whole(asked.topic)
        found: list[QueueDeletion] = []
        # Before the first of them: a topic that is gone in one group alone could not be used.
        for dry_run in (True,) if asked.dry_run else (True, False):
            part = encode(replace(asked, dry_run=dry_run))
            answers = [
                await self._parts.ask(group, RequestCode.DELETE_QUEUES, part) for group in holders
            ]
            found = [one for answer in answers for one in decode(QueueDeletions, answer).queues]
            hindered = [one for one in found if one.obstacles]
            if hindered and not asked.dry_run:
                raise TopicInUse(
                    f"{len(hindered)} of {len(found)} queues cannot be deleted yet: {asked.topic}/{hindered[0].queue_id}"
                    f" {'; '.join(hindered[0].obstacles)}"
                )
        found.sort(key=lambda one: one.queue_id)
        return encode(QueueDeletions(not asked.dry_run, found))

    async def _list_groups(self, body: bytes) -> bytes:
        self._parts.require(self._links)
        answers = await self._parts.ask_up(RequestCode.LIST_GROUPS, body)
        return encode(page_of_groups([decode(GroupsAnswer, each) for each in answers.values()]))

    async def _describe_group(self, body: bytes) -> bytes:
        self._parts.require(self._links)
        bodies = dict.fromkeys(self._links, body)
        answers, failures = await self._parts.ask_each(RequestCode.DESCRIBE_GROUP, bodies)
        for error in failures.values():
            if not (answers and isinstance(error, GroupNotFound)):
                raise error
        return encode(one_group([decode(GroupDescription, each) for each in answers.values()]))
