"""
Asks broker groups their parts of a request, and sets a group aside that refuses or does not answer.

    g1 answers ───────────────────▶ the answers, and why there is none of g2
    g2 refuses, or is late ──▶ as if it were away, for a patient client

A group that is set aside is asked nothing more until it lets the member in again. That is tried after some heartbeats,
after twice as many each time that it was in vain; a new connection to the group ends it at once.

Used by `answers`.
"""

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from headrace_mq._net.link import Link
from headrace_mq._runtime.log import get_logger
from headrace_mq.errors import (
    BrokerError,
    ConnectionLost,
    MessageQueueError,
    NotLeader,
    NotPermitted,
    RequestTimeout,
)
from headrace_mq.protocol.codes import RequestCode

__all__ = ["Parts"]

# Longer than any client waits: its own time ends the request.
PART_MS_MAX: Final = 300_000
# So long a patient client waits for the other groups once one has answered; half of the time that a lock lasts.
LATE_MS: Final = 5_000
# A group that was set aside is asked again after at most so many heartbeats.
BEATS_ASIDE_MAX: Final = 16

_log = get_logger(__name__)


@dataclass
class _Aside:
    """A group that was set aside over a connection of this number, and how many heartbeats it is left alone."""

    connection: int
    beats: int = 1
    left: int = 1
    is_back: bool = False
    trial: asyncio.Task[None] | None = None


class Parts:
    """The broker groups of one client.

    Args:
        links: by the name of the group, in the order of the address.
        patient: the client goes on without groups that refuse or do not answer.

    Attributes:
        late: the groups whose answers are waited for.
    """

    def __init__(self, links: Mapping[str, Link], *, patient: bool) -> None:
        self._links = links
        self._patient = patient
        self._asides: dict[str, _Aside] = {}
        self.late: set[str] = set()

    @property
    def up(self) -> list[str]:
        """The groups that are connected and not set aside; those that were, if there is no other."""
        connected = [group for group, link in self._links.items() if link.is_up]
        return [group for group in connected if not self.is_aside(group)] or connected

    def is_aside(self, group: str) -> bool:
        """Whether a group was set aside over the connection that stands."""
        found = self._asides.get(group)
        return (
            found is not None
            and not found.is_back
            and found.connection == self._links[group].connections
        )

    def require(self, groups: Collection[str]) -> None:
        """Raises NotLeader unless all of these groups are connected."""
        away = [group for group in groups if not self._links[group].is_up]
        if away:
            raise NotLeader(
                f"broker group {away[0]} does not answer, and it is needed for this; start its brokers, or look at its"
                f" address in the name servers ({self._links[away[0]].last_error or 'it was connected before'})"
            )

    async def ask(self, group: str, code: RequestCode, body: bytes) -> memoryview:
        """Asks one group. Raises MessageQueueError: it refused, or its connection ended."""
        self.late.add(group)
        try:
            answer = await self._links[group].request(code, body, timeout_ms=PART_MS_MAX)
        except MessageQueueError:
            self.late.discard(group)
            raise
        # Where its time ended meanwhile, it stays among those that are late.
        self.late.discard(group)
        return answer

    async def ask_each(
        self, code: RequestCode, bodies: Mapping[str, bytes]
    ) -> tuple[dict[str, memoryview], dict[str, MessageQueueError]]:
        """Asks some groups at the same time; returns what they answered, and why others did not."""
        answers: dict[str, memoryview] = {}
        failures: dict[str, MessageQueueError] = {}

        async def ask(group: str, body: bytes) -> None:
            try:
                answers[group] = await self.ask(group, code, body)
            except MessageQueueError as error:
                failures[group] = error

        asking = {asyncio.create_task(ask(group, body)): group for group, body in bodies.items()}
        try:
            left = set(asking)
            while left:
                within_s = LATE_MS / 1_000 if self._patient and answers else None
                done, left = await asyncio.wait(
                    left, timeout=within_s, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    task.result()
                if not done:
                    break
            for group in (asking[task] for task in left):
                failures[group] = RequestTimeout(
                    f"no answer from broker group {group} within {LATE_MS} ms after another one"
                )
                self.late.discard(group)
        finally:
            for task in asking:
                task.cancel()
        # In the order of the address.
        return {group: answers[group] for group in bodies if group in answers}, failures

    async def ask_up(self, code: RequestCode, body: bytes) -> dict[str, memoryview]:
        """Asks all groups that are `up`; one that `may_lack` is left out.

        Raises:
            MessageQueueError: a group refused, or none answered.
        """
        answers, failures = await self.ask_each(code, dict.fromkeys(self.up, body))
        for error in failures.values():
            if not answers or not self.may_lack(error):
                raise error
        if not answers:
            raise ConnectionLost(f"none of the broker groups {', '.join(self._links)} answers")
        return answers

    def may_lack(self, error: MessageQueueError) -> bool:
        """Whether a group that failed so is left out, if another one answered: it may be about that group alone."""
        if isinstance(error, ConnectionLost):
            return True
        passes = isinstance(error, BrokerError) and error.retriable
        return self._patient and (passes or isinstance(error, NotPermitted | RequestTimeout))

    def set_aside(self, failures: Mapping[str, MessageQueueError]) -> None:
        """Sets groups aside that failed; those whose connection ended are away in any case."""
        for group, error in failures.items():
            if isinstance(error, ConnectionLost) or not self.may_lack(error):
                continue
            connection = self._links[group].connections
            known = self._asides.get(group)
            beats = 1
            if known is not None and known.connection == connection:
                beats = min(2 * known.beats, BEATS_ASIDE_MAX)
            else:
                _log.error(
                    "a broker group refuses the consumer; it reads the queues of the others",
                    broker_group=group, reason=str(error),
                )  # fmt: skip
            self._asides[group] = _Aside(connection, beats, beats)

    def try_again(self, joining: bytes) -> None:
        """Lets groups that were set aside let the member in, where it is time; called at each heartbeat."""
        for group, aside in self._asides.items():
            if not self._links[group].is_up or not self.is_aside(group) or aside.trial is not None:
                continue
            aside.left -= 1
            if aside.left <= 0:
                aside.trial = asyncio.create_task(self._try(group, aside, joining))

    async def _try(self, group: str, aside: _Aside, joining: bytes) -> None:
        with suppress(MessageQueueError, TimeoutError):
            async with asyncio.timeout(LATE_MS / 1_000):
                await self.ask(group, RequestCode.JOIN_GROUP, joining)
            aside.is_back = True
        self.late.discard(group)
        aside.beats = min(2 * aside.beats, BEATS_ASIDE_MAX)
        aside.left, aside.trial = aside.beats, None

    def let_in(self, groups: Collection[str]) -> None:
        """Notes that groups have let the member in: they are set aside no longer."""
        for group in groups:
            if group in self._asides:
                self._asides[group].is_back = True

    def close(self) -> None:
        """Ends what is tried."""
        for aside in self._asides.values():
            if aside.trial is not None:
                aside.trial.cancel()
