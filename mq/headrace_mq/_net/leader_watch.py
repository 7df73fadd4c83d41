"""
Finds the broker that leads a group now, while a connection to the one that led says nothing.

    silent ─▶ heartbeat on the connection ─▶ still silent ─▶ HELLO to the others, again and again ─▶ one serves, in a later epoch

A broker that was paused, or cut off, keeps its connections open; the system needs a minute to notice that, or never does.
Only addresses with several places, or with name servers, are watched. The others refuse HELLO while they are replicas, and the connection to
each is kept for the next look: a look costs them one frame, and no handshake of TLS.

Used by `link`, which goes on with the connection that was found.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum
from typing import NamedTuple

from headrace_mq._net.client_connection import ClientConnection
from headrace_mq.errors import MessageQueueError, NotLeader
from headrace_mq.protocol.bodies import Heartbeat, encode
from headrace_mq.protocol.codes import RequestCode

__all__ = ["NextStep", "Place", "Silence", "Successor", "until_superseded"]

# A connection that is silent for this long is asked. An idle client sends one heartbeat in that time.
SILENT_MS = 1_000
# A broker that serves answers a heartbeat within milliseconds. After this time the others are asked: before a replica
# leads, which takes three seconds, and not at every pause of a busy broker.
UNANSWERED_MS = 500
# How often a connection that answers is looked at.
CALM_LOOK_MS = 500
# How often the others are asked. Of a thousand clients each of two replicas gets 4,000 frames a second, which is a tenth
# of what it can do; and a client finds the new leader some 0.1 s after it begins to serve.
LOOK_MS = 250
# A group without a leader for this long lacks more than one broker: it is asked less often.
EAGER_MS_MAX = 8_000
PATIENT_LOOK_MS = 1_500
# A broker that serves answers HELLO within milliseconds, over TLS within some tens.
HELLO_MS_MAX = 500
# Clients that lost the same broker do not ask in step.
_SPREAD = (0.75, 1.25)

Place = tuple[str, int]


class Successor(NamedTuple):
    """The broker that leads now: where it is, and a connection to it whose handshake is done."""

    place: Place
    connection: ClientConnection


class NextStep(Enum):
    """What to do about a connection."""

    WAIT = "it answered, or has time to answer"
    ASK_IT = "send it a heartbeat"
    ASK_OTHERS = "it does not answer: another broker may lead"


class Silence:
    """How long a connection has been silent. PURE.

    Args:
        progress: changes with what arrives.
        now_ms: the time, of a clock that does not jump.
    """

    def __init__(self, progress: object, now_ms: float) -> None:
        self._progress = progress
        self._since_ms = now_ms
        self._asked_ms: float | None = None

    def look(self, progress: object, now_ms: float) -> NextStep:
        """Returns what to do now; the heartbeat of `ASK_IT` is sent at once."""
        if progress != self._progress:
            self._progress, self._since_ms, self._asked_ms = progress, now_ms, None
            return NextStep.WAIT
        if self._asked_ms is None:
            if now_ms < self._since_ms + SILENT_MS:
                return NextStep.WAIT
            self._asked_ms = now_ms
            return NextStep.ASK_IT
        return NextStep.ASK_OTHERS if now_ms >= self._asked_ms + UNANSWERED_MS else NextStep.WAIT

    def pause_ms(self, step: NextStep, now_ms: float) -> int:
        """Returns when to look again after a step, in milliseconds."""
        if step is not NextStep.ASK_OTHERS:
            return CALM_LOOK_MS
        return LOOK_MS if now_ms < self._since_ms + EAGER_MS_MAX else PATIENT_LOOK_MS


async def until_superseded(
    connection: ClientConnection,
    places: Callable[[], Iterable[Place]],
    open_to: Callable[[Place], Awaitable[ClientConnection]],
    greet: Callable[[ClientConnection], Awaitable[None]],
) -> Successor:
    """Returns the broker at another place that serves in a later epoch; cancel it with the connection.

    Args:
        connection: whose handshake is done.
        places: returns the others; called for each look at them.
        open_to: makes a connection; raises OSError, ValueError or MessageQueueError.
        greet: shakes hands over it; raises NotLeader where a later try may succeed, else MessageQueueError.
    """
    assert connection.hello is not None
    now_ms = _now_ms()
    silence, scouts = Silence(connection.progress, now_ms), _Scouts(places, open_to, greet)
    step, draw = NextStep.WAIT, random.SystemRandom()
    try:
        while True:
            await asyncio.sleep(silence.pause_ms(step, now_ms) * draw.uniform(*_SPREAD) / 1_000)
            now_ms = _now_ms()
            step = silence.look(connection.progress, now_ms)
            if step is NextStep.ASK_IT:
                connection.submit(RequestCode.HEARTBEAT, encode(Heartbeat()), receive=_nothing)
            elif step is NextStep.ASK_OTHERS:
                found = await scouts.look(connection.hello.epoch)
                if found is not None:
                    return found
            else:
                scouts.close()
    finally:
        scouts.close()


class _Scouts:
    """One connection to each of the other places, as long as they are asked."""

    def __init__(
        self,
        places: Callable[[], Iterable[Place]],
        open_to: Callable[[Place], Awaitable[ClientConnection]],
        greet: Callable[[ClientConnection], Awaitable[None]],
    ) -> None:
        self._places = places
        self._open_to = open_to
        self._greet = greet
        self._open: dict[Place, ClientConnection] = {}

    async def look(self, epoch: int) -> Successor | None:
        """Asks all at the same time; returns the one that serves in the latest epoch after this one."""
        await asyncio.gather(*map(self._ask, self._places()))
        best: Successor | None = None
        for place, scout in self._open.items():
            if scout.hello is not None and scout.hello.epoch > epoch:
                epoch, best = scout.hello.epoch, Successor(place, scout)
        if best is not None:
            del self._open[best.place]
        else:
            # One that serves in an earlier epoch does not know yet that it leads no longer.
            for place in [one for one, scout in self._open.items() if scout.hello is not None]:
                self._drop(place)
        return best

    async def _ask(self, place: Place) -> None:
        scout = self._open.get(place)
        try:
            async with asyncio.timeout(HELLO_MS_MAX / 1_000):
                if scout is None or scout.lost.done():
                    scout = self._open[place] = await self._open_to(place)
                await self._greet(scout)
        except NotLeader:
            pass
        except (OSError, TimeoutError, ValueError, MessageQueueError):
            self._drop(place)

    def _drop(self, place: Place) -> None:
        scout = self._open.pop(place, None)
        if scout is not None:
            scout.end("it was only asked")

    def close(self) -> None:
        for place in list(self._open):
            self._drop(place)


def _now_ms() -> float:
    return asyncio.get_running_loop().time() * 1_000


def _nothing(_answer: object) -> None:
    return None
