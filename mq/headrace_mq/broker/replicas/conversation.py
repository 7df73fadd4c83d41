"""
A replica's connection to its leader: it asks, takes over what comes, and says what its disk has.

    address refused ─▶ the leader's process is gone
    connected ─▶ FOLLOW ─▶ answer ─▶ taken over ─▶ FOLLOW …  until the connection ends, or there is another leader, whose
                              │                              epoch the old one hears of before the end
                              └─▶ "lead now": the leader stops in order, or was asked to

Used by `replicated_broker`; what comes is taken over by `Replica`.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress

from headrace_mq._net.address import BrokerAddress
from headrace_mq._net.link import Link, LinkSettings
from headrace_mq._runtime.clock import Clock
from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.replicas.bodies import FollowAnswer
from headrace_mq.broker.replicas.documents import USERS_DOCUMENT
from headrace_mq.broker.replicas.followers import FOLLOW_BYTES_MAX
from headrace_mq.broker.replicas.progress.progress import FOLLOW_WAIT_MS_MAX
from headrace_mq.broker.replicas.replica import Replica
from headrace_mq.cluster.election import LEASE_MS, RENEW_MS, Patience
from headrace_mq.cluster.frames import HandOver
from headrace_mq.cluster.member import ClusterMember
from headrace_mq.errors import (
    ConnectionLost,
    LoginFailed,
    MessageQueueError,
    NotLeader,
    NotPermitted,
    TlsFailed,
)
from headrace_mq.protocol.bodies import decode, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import REPLICA_SOFTWARE

__all__ = ["Conversation"]

# How long one attempt to reach the leader may take; it is repeated until the lease is over.
_REACH_MS = 500
_RECONNECT_MS = (20, 100)

# The sentences of errors are for clients; a broker has other settings.
_ADVICE = (
    (LoginFailed, "; a broker logs in as group.user, with the password in group.password_file"),
    (NotPermitted, "; group.user must be an administrator, or may administer cluster"),
    (TlsFailed, "; a broker shows its own certificate, and believes the authorities in group.ca"),
)

_log = get_logger(__name__)


class Conversation:
    """What a replica and its leaders say, one leader after the other.

    Args:
        replica: of this broker.
        clock: the time.
        address_of: what to connect to for a leader's name.
        pause: waits for so many milliseconds, or until something changed.
        hindrance: why this broker must not follow, by what is in its folder; empty: it may.
        misfit: why it must not be in this group, by the users of the group that it has copied; empty: it may. They stay
            as they are until another leader begins.
    """

    def __init__(
        self,
        replica: Replica,
        clock: Clock,
        address_of: Callable[[str], BrokerAddress],
        pause: Callable[[int], Awaitable[None]],
        hindrance: Callable[[], str] = lambda: "",
        misfit: Callable[[], str] = lambda: "",
    ) -> None:
        self._replica = replica
        self._clock = clock
        self._address_of = address_of
        self._pause = pause
        self._hindrance = hindrance
        self._misfit = misfit
        # Of which epoch the users did not fit, and why.
        self._unfit = (0, "")
        # What is wrong, so that it is said once.
        self._trouble = ""

    async def follow(
        self, leader: str, member: ClusterMember, patience: Patience, goes_on: Callable[[], bool]
    ) -> HandOver | None:
        """Follows a leader until its connection ends, or `goes_on` says no.

        Args:
            leader: its name.
            member: of this broker.
            patience: with this leader.
            goes_on: whether it still is the one to follow.

        Returns the leader's frame, if it asked this broker to lead; else None.

        Raises:
            MessageQueueError: the store cannot be used.
        """
        if await _is_refused(leader):
            patience.refused()
            return None
        epoch = member.epoch
        if why := self._hindrance() or (self._unfit[1] if self._unfit[0] == epoch else ""):
            await self._wait(leader, MessageQueueError(why))
            return None
        link = Link(
            str(self._address_of(leader)),
            client_id=str(uuid.uuid4()),
            settings=LinkSettings(_RECONNECT_MS, vanished_ms=LEASE_MS, tells=False),
            software=REPLICA_SOFTWARE,
        )
        offer: HandOver | None = None
        try:
            await link.start(_REACH_MS)
            _log.info("following", leader=leader, epoch=member.epoch)
            self._replica.on_synced = lambda: self._say_durable(link, member)
            while offer is None and goes_on():
                offer = await self._ask(link, member, patience)
            if member.epoch > epoch:
                # The old leader may not reach the record: it leads no longer as soon as it hears of a later epoch.
                self._say_durable(link, member)
        except (MessageQueueError, TimeoutError) as error:
            if not self._replica.is_open:
                raise
            await self._wait(leader, error)
        finally:
            self._replica.on_synced = None
            await link.aclose()
            # The log ends where its bytes are on the disk before a leader's epoch may begin there.
            if self._replica.is_open:
                with suppress(MessageQueueError, TimeoutError):
                    await self._replica.until_synced()
        return offer

    async def _ask(self, link: Link, member: ClusterMember, patience: Patience) -> HandOver | None:
        if not link.is_up:
            raise ConnectionLost("the connection ended")
        question = encode(self._replica.question(member, link.frame_bytes_max))
        asked_ms = self._clock.monotonic_ms()
        # At once, because the loop may be about to wait for the disk.
        body = await link.request(RequestCode.FOLLOW, question, timeout_ms=LEASE_MS, at_once=True)
        patience.heard(self._clock.monotonic_ms())
        answer = decode(FollowAnswer, body)
        await self._replica.take(member, answer)
        if answer.documents and (why := self._hindrance() or self._unfit_by(answer)):
            # Before it says that it has them, and so before it enters the set.
            raise MessageQueueError(why)
        if answer.epoch == member.epoch:
            self._replica.heard_ms = asked_ms
        await self._replica.until_synced(ahead_bytes=FOLLOW_BYTES_MAX)
        if self._replica.is_held_off:
            # The leader has more, so it would answer at once each time.
            await self._pause(FOLLOW_WAIT_MS_MAX)
        else:
            self._trouble = ""
        return HandOver(answer.epoch, answer.leaves, answer.version) if answer.lead else None

    def _unfit_by(self, answer: FollowAnswer) -> str:
        """Returns why this broker must not be in the group of these users; it does not ask again in this epoch."""
        why = self._misfit() if any(one.name == USERS_DOCUMENT for one in answer.documents) else ""
        if why:
            self._unfit = (answer.epoch, why)
        return why

    def _say_durable(self, link: Link, member: ClusterMember) -> None:
        link.tell(RequestCode.FOLLOW, encode(self._replica.report(member)))

    async def _wait(self, leader: str, error: Exception) -> None:
        """Says once why this broker cannot follow, and waits before it tries again."""
        is_lost = isinstance(error, ConnectionLost | NotLeader) and not isinstance(error, TlsFailed)
        trouble = str(error) or "the disk took no bytes in time; make room, or replace it"
        trouble += next((advice for kind, advice in _ADVICE if isinstance(error, kind)), "")
        if trouble != self._trouble:
            self._trouble = trouble
            log = _log.info if is_lost else _log.error
            log("this broker does not follow its leader now", leader=leader, reason=trouble)
        await self._pause(_RECONNECT_MS[0] if is_lost else RENEW_MS)


async def _is_refused(leader: str) -> bool:
    """Whether the leader's machine says that no process listens there."""
    host, port = BrokerAddress.parse(leader).places[0]
    try:
        async with asyncio.timeout(_REACH_MS / 1_000):
            _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    return False
