"""
Where a client's brokers are: those that its address names, or those that name servers tell.

    nothing known ─▶ asked at once, and waited for
    known         ─▶ asked every 30 s; and soon after a connection was lost, or its broker says nothing

What is known stays good while no name server answers. Name servers know nothing of each other, so they are asked in turn
until one knows a leader. Each look is a connection of its own: a client that asks every 30 s needs none in between.

Used by `link`, which connects to the places; `routes_of` also by the blocking reader.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final

from headrace_mq._net.address import BrokerAddress, ClusterName, failure_of, parse_address
from headrace_mq._net.client_connection import ClientConnection
from headrace_mq._net.leader_watch import Place
from headrace_mq._runtime.log import get_logger
from headrace_mq.errors import (
    BrokerError,
    ConnectionLost,
    InvalidArgument,
    MessageQueueError,
    TlsFailed,
)
from headrace_mq.protocol.bodies import decode, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.names.routes import REPLICA, FindRoutes, RoutesAnswer

__all__ = ["NameServers", "best_of", "routes_of"]

# How often they are asked while all is well: a broker that is new serves no client before it leads.
LOOK_MS: Final = 30_000
# After a connection was lost: so many clients ask the name servers at a time, and each asks again while it finds none.
SOON_MS: Final = 100
AGAIN_MS: Final = 1_000
# A name server answers within milliseconds, over TLS within some tens. The next one is asked after this.
ANSWER_MS_MAX: Final = 1_000
_SPREAD = (0.75, 1.25)

_log = get_logger(__name__)


def routes_of(answer: RoutesAnswer, name: ClusterName) -> tuple[list[Place], bool]:
    """Returns where the brokers of a group are, its leader first, and whether it has one.

    Raises:
        ConnectionLost: the name server knows none, or cannot say yet.
        InvalidArgument: the cluster has several groups, and the address names none.
    """
    if not answer.ready:
        raise ConnectionLost("the name server has just started, and is not ready")
    groups = sorted({each.group for each in answer.brokers})
    if len(groups) > 1:
        raise InvalidArgument(
            f"cluster {name.cluster} has the groups {', '.join(groups)}: name one of them in the address,"
            f" nameserver://HOST:PORT/{name.cluster}/{groups[0]}, or several for topics that are spread over them,"
            f" nameserver://HOST:PORT/{name.cluster}/{','.join(groups)}"
        )
    places: dict[Place, None] = {}
    for text in (text for each in answer.brokers for text in each.addresses):
        with suppress(ValueError):  # of a later version, which knows other addresses
            places[parse_address(text)] = None
    if not places:
        what = (
            f"group {name.group} of cluster {name.cluster}"
            if name.group
            else f"cluster {name.cluster}"
        )
        raise ConnectionLost(
            f"the name server knows no broker of {what}; check the name, and start the brokers with --nameservers"
        )
    return list(places), answer.brokers[0].role != REPLICA


def best_of(failures: dict[Place, Exception]) -> Exception:
    """Returns why no name server was of use; a refusal that will not pass by waiting comes first."""
    for error in failures.values():
        if isinstance(error, TlsFailed) or (isinstance(error, BrokerError) and not error.retriable):
            return error
    return failure_of(failures)


class NameServers:
    """Keeps a list of places as name servers say.

    Args:
        servers: their places.
        name: what to ask for; None: nothing is asked, and the places stay as they are.
        places: where the brokers are; changed here.
        open_to: makes a connection; raises OSError, ValueError or MessageQueueError.
        greet: shakes hands over it.
    """

    def __init__(
        self,
        servers: Iterable[Place],
        name: ClusterName | None,
        places: list[Place],
        open_to: Callable[[Place], Awaitable[ClientConnection]],
        greet: Callable[[ClientConnection], Awaitable[None]],
    ) -> None:
        self._draw = random.SystemRandom()
        self._servers = list(servers)
        # So that each of them has as many clients.
        self._draw.shuffle(self._servers)
        self._name = name
        self._places = places
        self._open_to = open_to
        self._greet = greet
        self._wanted = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    @classmethod
    def of(
        cls,
        address: BrokerAddress,
        places: list[Place],
        open_to: Callable[[Place], Awaitable[ClientConnection]],
        greet: Callable[[ClientConnection], Awaitable[None]],
    ) -> "NameServers":
        """Those of an address; empties the places if it names no brokers."""
        if address.cluster is not None:
            places.clear()
        return cls(address.places, address.cluster, places, open_to, greet)

    @property
    def are_asked(self) -> bool:
        """Whether the address has name servers."""
        return self._name is not None

    async def look(self) -> None:
        """Makes sure that a place is known; what is known may be out of date, so they are asked meanwhile.

        Raises:
            MessageQueueError: no place is known, and no name server tells one.
        """
        if self._name is None:
            return
        if not self._places:
            self._take(await self._ask(self._name))
        else:
            self._wanted.set()
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep(self._name), name="ask name servers")

    def others(self, mine: Place) -> Callable[[], list[Place]]:
        """Returns what tells the places but for one, when that one says nothing; the name servers are asked then."""

        def others() -> list[Place]:
            self._wanted.set()
            return [each for each in self._places if each != mine]

        return others

    async def aclose(self) -> None:
        """Stops to ask."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait([keeper])

    async def _keep(self, name: ClusterName) -> None:
        failed = False
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), self._spread(LOOK_MS))
                await asyncio.sleep(self._draw.uniform(0, SOON_MS) / 1_000)
            self._wanted.clear()
            try:
                self._take(await self._ask(name))
                failed = False
            except MessageQueueError as error:
                if not failed:
                    _log.warning("no name server tells where the brokers are", reason=str(error))
                failed = True
            await asyncio.sleep(self._spread(AGAIN_MS))

    def _spread(self, pause_ms: int) -> float:
        return pause_ms * self._draw.uniform(*_SPREAD) / 1_000

    def _take(self, found: list[Place]) -> None:
        # The one that served last is asked first, as long as it is there.
        known = [each for each in self._places[:1] if each in found]
        self._places[:] = dict.fromkeys([*known, *found])

    async def _ask(self, name: ClusterName) -> list[Place]:
        failures: dict[Place, Exception] = {}
        second: list[Place] = []
        for server in list(self._servers):
            try:
                async with asyncio.timeout(ANSWER_MS_MAX / 1_000):
                    answer = await self._ask_one(server, name)
                found, leads = routes_of(answer, name)
            except TimeoutError:
                failures[server] = ConnectionLost(f"no answer within {ANSWER_MS_MAX} ms")
            except (OSError, ValueError, MessageQueueError) as error:
                failures[server] = error
            else:
                if leads:
                    self._servers.sort(key=lambda each: each != server)
                    return found
                second = second or found
        if second:
            return second
        reason = best_of(failures)
        raise reason if isinstance(reason, MessageQueueError) else ConnectionLost(str(reason))

    async def _ask_one(self, server: Place, name: ClusterName) -> RoutesAnswer:
        connection = await self._open_to(server)
        try:
            await self._greet(connection)
            body = await connection.request(RequestCode.ROUTES, encode(FindRoutes(*name)))
            return decode(RoutesAnswer, body)
        finally:
            connection.end("it was only asked")
