"""
Tells name servers, once a second, where this broker is and what it does.

    each name server: connect, log in ─▶ REGISTER every second ─▶ its connection ends ─▶ connect again

Each name server has a connection of its own, and none waits for another. They are no part of what a broker promises: while
none answers, clients go on with the addresses that they know.

Used by `process`, which knows the broker; uses a link to each name server.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Final

from headrace_mq._net.address import BrokerAddress, place_name
from headrace_mq._net.link import Link, LinkSettings
from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.replicas.figures import GroupFigures
from headrace_mq.broker.state import BrokerState
from headrace_mq.errors import MessageQueueError
from headrace_mq.name_settings import NamesSettings
from headrace_mq.protocol.bodies import encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.names.routes import ALONE, LEADER, REPLICA, Register

__all__ = ["Registrar", "member", "single"]

REGISTER_MS: Final = 1_000
# A name server answers within milliseconds; one that needs longer is as good as absent.
ANSWER_MS_MAX: Final = 2_000
# So that a name server that was started again knows every broker when it says that it is ready, two seconds later.
_RECONNECT_MS: Final = (100, 500)
# It is waited for as long as it takes.
_START_MS_MAX: Final = 1 << 40
# After it refused the login or the certificate, which a person has to mend.
REFUSED_MS: Final = 5_000
_SPREAD = (0.75, 1.25)

_log = get_logger(__name__)


def single(settings: NamesSettings, address: str, state: BrokerState) -> Register:
    """Returns what a broker says that is in no group.

    Args:
        settings: its names.
        address: where it listens.
        state: what it works on.
    """
    place = settings.advertise or address
    ends = state.store.raw.ends()
    return Register(
        settings.cluster, settings.name, place, ALONE, state.epoch, [place], sum(ends.values())
    )


def member(figures: GroupFigures) -> Register:
    """Returns what a broker of a group says; its name is its address."""
    role = LEADER if figures.leads else REPLICA
    return Register(
        figures.cluster, figures.group, figures.me, role, figures.epoch, [figures.me], figures.position
    )  # fmt: skip


class Registrar:
    """Keeps a broker registered from `start` to `aclose`.

    Args:
        servers: the address of all name servers, with their TLS and the login of this broker.
        describe: returns what to say now; None: nothing, because the broker starts again.

    Raises:
        MessageQueueError: it is no address of name servers.
    """

    def __init__(self, servers: str, describe: Callable[[], Register | None]) -> None:
        try:
            parsed = BrokerAddress.parse(servers)
        except ValueError as error:
            raise MessageQueueError(f"--nameservers: {error}") from None
        if parsed.cluster is not None:
            raise MessageQueueError(
                "--nameservers takes the name servers themselves, HOST:PORT,HOST:PORT, or tls://HOST:PORT?ca=FILE; the"
                " name of the cluster is a setting of its own"
            )
        self._servers = {
            place_name(place): str(parsed._replace(places=(place,))) for place in parsed.places
        }
        self._describe = describe
        self._tasks: list[asyncio.Task[None]] = []
        self._draw = random.SystemRandom()

    def start(self) -> None:
        """Begins to register."""
        self._tasks = [
            asyncio.create_task(self._keep(name, address), name=f"register at {name}")
            for name, address in self._servers.items()
        ]

    async def aclose(self) -> None:
        """Ends the connections, and so the registrations."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep(self, name: str, address: str) -> None:
        while True:
            link = Link(
                address, client_id=f"broker at {name}", settings=LinkSettings(_RECONNECT_MS)
            )
            try:
                await link.start(_START_MS_MAX)
                await self._register(link, name)
            except (MessageQueueError, OSError, ValueError) as error:
                _log.error(
                    "a name server does not take this broker", server=name, reason=str(error)
                )
            finally:
                await link.aclose()
            await asyncio.sleep(self._spread(REFUSED_MS))

    async def _register(self, link: Link, name: str) -> None:
        outcome = ""
        while True:
            before, said = outcome, self._describe()
            if said is not None:
                try:
                    body = encode(said)
                    await link.request(RequestCode.REGISTER, body, timeout_ms=ANSWER_MS_MAX)
                    outcome = f"as {said.role}"
                except MessageQueueError as error:
                    outcome = str(error)
            if outcome != before:
                _log.info("registration at a name server", server=name, outcome=outcome)
            await asyncio.sleep(self._spread(REGISTER_MS))

    def _spread(self, pause_ms: int) -> float:
        return pause_ms * self._draw.uniform(*_SPREAD) / 1_000
