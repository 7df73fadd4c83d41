"""
Looks at brokers for `headrace doctor`: asks each address, then the one that serves for all it tells; reads a group's record.

Used by the command; uses `AdminClient` with requests that only read, and which need no more than permission to read.
"""

import asyncio
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from headrace.cli.doctor.broker_rules import BrokerFacts, NameFacts, PlaceFacts, PlaceKind
from headrace.cli.doctor.cluster_rules import ClusterFacts
from headrace.figures.questions import Questions
from headrace_mq.client.retry_headers import DEAD_LETTER_PREFIX
from headrace_mq.protocol.names.routes import RoutesAnswer

if TYPE_CHECKING:
    from headrace_mq._net.address import BrokerAddress
    from headrace_mq.admin.client import AdminClient

__all__ = [
    "look_at_broker",
    "look_at_cluster",
    "look_at_names",
    "look_at_place",
    "look_at_places",
]

# A broker that runs answers within milliseconds; so long a person waits for one that does not.
CONNECT_MS: Final = 3_000
_TIMEOUT_MS: Final = 10_000
# The clock is asked so often, and the quickest answer counts: it is the surest.
_CLOCK_LOOKS: Final = 3
# Groups whose oldest message is looked for, those with the most messages first; three requests each.
GROUPS_AGED_MAX: Final = 50
# Groups whose dead letters are counted, and letters of each; more are as bad.
_LETTER_GROUPS_MAX: Final = 50
_LETTERS_MAX: Final = 1_000
_FOREVER: Final = "forever"


async def look_at_names(address: "BrokerAddress") -> "tuple[BrokerAddress, list[NameFacts]]":
    """Returns where the brokers are, as name servers say, and what each of these answers.

    An address without name servers stays as it is; without a place that one tells, there are no places.
    """
    from headrace_mq._net.name_servers import routes_of
    from headrace_mq.admin.name_servers import ask_name_servers
    from headrace_mq.errors import MessageQueueError

    name = address.cluster
    if name is None:
        return address, []
    if len(address.groups) > 1:
        several = (
            f"the address names the groups {', '.join(address.groups)}; examine each of them alone"
        )
        return address._replace(places=(), cluster=None), [NameFacts(str(address), 0, several)]
    servers = str(address._replace(cluster=None))
    answers = await ask_name_servers(servers, name.cluster, timeout_ms=CONNECT_MS)
    places: dict[tuple[str, int], None] = {}
    facts: list[NameFacts] = []
    for server, answer in answers.items():
        try:
            if isinstance(answer, MessageQueueError):
                raise answer
            own = [one for one in answer.brokers if name.group in {"", one.group}]
            found, _ = routes_of(RoutesAnswer(answer.ready, own), name)
        except MessageQueueError as error:
            facts.append(NameFacts(server, 0, str(error)))
        else:
            places |= dict.fromkeys(found)
            facts.append(NameFacts(server, len(found)))
    return address._replace(places=tuple(places), cluster=None), facts


async def look_at_places(address: "BrokerAddress") -> list[PlaceFacts]:
    """Returns what each place of an address answers, all asked at the same time."""
    from headrace_mq._net.address import place_name

    asked = (look_at_place(address, place_name(place)) for place in address.places)
    return list(await asyncio.gather(*asked))


async def look_at_place(address: "BrokerAddress", name: str) -> PlaceFacts:
    """Returns what a broker at HOST:PORT answers to a client that connects as an address says."""
    from headrace_mq._net.address import parse_address
    from headrace_mq.admin.client import AdminClient
    from headrace_mq.errors import MessageQueueError

    user = address.login.user if address.login else ""
    try:
        one = address._replace(places=(parse_address(name),))
        admin = AdminClient(str(one), timeout_ms=_TIMEOUT_MS, connect_ms=CONNECT_MS)
    except ValueError as error:
        return PlaceFacts(name, "silent", str(error))
    try:
        await admin.start()
    except MessageQueueError as error:
        cause = admin.trouble or error
        said = error if _kind(cause) == "silent" else cause
        return PlaceFacts(name, _kind(cause), str(said))
    await admin.aclose()
    return PlaceFacts(name, "leads", user=user)


def _kind(error: BaseException) -> PlaceKind:
    from headrace_mq.errors import LoginFailed, NotLeader, TlsFailed, UnsupportedVersion

    kinds: tuple[tuple[type[BaseException], PlaceKind], ...] = (
        (NotLeader, "replica"), (LoginFailed, "login"), (UnsupportedVersion, "version"), (TlsFailed, "tls"),
    )  # fmt: skip
    return next((kind for each, kind in kinds if isinstance(error, each)), "silent")


async def look_at_broker(address: "BrokerAddress") -> BrokerFacts:
    """Returns what a broker tells that answers.

    Raises:
        MessageQueueError: it stopped to answer.
    """
    from headrace_mq.admin.client import AdminClient

    async with AdminClient(str(address), timeout_ms=_TIMEOUT_MS, connect_ms=CONNECT_MS) as admin:
        return await _Questions(admin).ask_all()


async def look_at_cluster(
    url: str, address: "BrokerAddress", *, cluster: str, group: str, min_in_sync: int
) -> ClusterFacts:
    """Returns what the record of a group and its members say.

    Args:
        url: of the database with the record.
        address: that clients have, with how they connect.
        cluster: the name of the cluster.
        group: the name of the group in it.
        min_in_sync: fewer brokers in sync acknowledge nothing.
    """
    from headrace_mq._net.address import place_name
    from headrace_mq.cluster.records.keeper import keeper_of
    from headrace_mq.errors import MessageQueueError

    named = frozenset(map(place_name, address.places))
    try:
        keeper = keeper_of(url, cluster=cluster, group=group)
        try:
            record = await keeper.read()
        finally:
            await keeper.aclose()
    except (MessageQueueError, ValueError) as error:
        return ClusterFacts(None, str(error), named=named)
    members = sorted({record.leader, *(one.name for one in record.in_sync)})
    answers = await asyncio.gather(*(look_at_place(address, name) for name in members))
    return ClusterFacts(
        record,
        answers=dict(zip(members, answers, strict=True)),
        named=named,
        min_in_sync=min_in_sync,
    )


class _Questions:
    """What is asked of one broker; what the user may not read is noted and left out."""

    def __init__(self, admin: "AdminClient") -> None:
        self._admin = admin
        self._questions = Questions(admin)

    async def ask_all(self) -> BrokerFacts:
        """Returns all that may be read."""
        status, ahead_ms, unsure_ms = await self._clock()
        topics, forever = await self._questions.queues(lambda one: one.retention == _FOREVER)
        groups: list[Any] = await self._questions.may(self._admin.groups(), [])
        return BrokerFacts(
            status=status,
            ahead_ms=ahead_ms,
            unsure_ms=unsure_ms,
            topics=topics,
            forever=forever,
            groups=groups,
            oldest_ms=await self._questions.oldest(groups, GROUPS_AGED_MAX),
            letters=await self._letters([one.topic for one in topics or ()]),
            denied=self._questions.denied,
        )

    async def _clock(self) -> tuple[Any, int, int]:
        best: tuple[Any, int, int] | None = None
        for _ in range(_CLOCK_LOOKS):
            before_ns = time.time_ns()
            status = await self._questions.may(self._admin.status(), None)
            after_ns = time.time_ns()
            if status is None:
                return None, 0, 0
            # The broker looked at its clock at some moment in between.
            middle_ms = (before_ns + after_ns) // 2_000_000
            unsure_ms = max(1, (after_ns - before_ns) // 2_000_000)
            if best is None or unsure_ms < best[2]:
                best = status, status.now_ms - middle_ms, unsure_ms
        assert best is not None, "asked at least once"
        return best

    async def _letters(self, topics: Iterable[str]) -> dict[str, int]:
        from headrace_mq.errors import TopicNotFound

        dead = [topic for topic in topics if topic.startswith(DEAD_LETTER_PREFIX)][
            :_LETTER_GROUPS_MAX
        ]
        found = {}
        for topic in dead:
            group = topic.removeprefix(DEAD_LETTER_PREFIX)
            asked = self._admin.dead_letters(group, limit=_LETTERS_MAX, unsent=True)
            try:
                letters: list[Any] = await self._questions.may(asked, [])
            except TopicNotFound:  # gone meanwhile
                continue
            if letters:
                found[group] = len(letters)
        return found
