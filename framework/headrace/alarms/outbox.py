"""
What one receiver must hear: each change once, what goes on again after a time, and the end of what it heard of. PURE.

    fires ─▶ firing ─ repeat ─▶ firing ─▶ … gone ─▶ resolved

What a receiver has heard is kept; a message that fails stays due. So none is lost while a receiver is away, and what
began and ended meanwhile is not told. Used by the watcher.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Literal

import msgspec

from headrace.alarms.board import RaisedAlarm

__all__ = ["AlarmMessage", "AlarmOutbox", "Heard"]

State = Literal["firing", "resolved", "test"]
# The end of an alarm that a receiver did not take for so long is news no more.
FORGOTTEN_S: Final = 86_400.0


class AlarmMessage(msgspec.Struct, frozen=True):
    """What a receiver is sent."""

    state: State
    alarm: RaisedAlarm


class Heard(msgspec.Struct, frozen=True):
    """What a receiver knows of an alarm.

    Attributes:
        alarm: as it was told.
        at_s: when, in seconds since 1970.
        gone_s: since when it is gone; 0: it fires.
        silenced: whether a person asked for quiet about it since then; the end of that is news.
    """

    alarm: RaisedAlarm
    at_s: float
    gone_s: float = 0.0
    silenced: bool = False


class AlarmOutbox:
    """What one receiver has heard, and must hear.

    Args:
        heard: by an earlier process, by the alarm's key.
        repeat_s: after this time an alarm that goes on is sent again.
        pause_s: after the first failure nothing is sent for so long.
        pause_s_max: after more failures the pause doubles up to this.

    Attributes:
        heard: by the alarm's key.
        failures: in a row.
        sentence: of the last failure; empty: there was none since the last success.
        next_s: not before this time a message is sent.
    """

    def __init__(
        self, heard: Mapping[str, Heard], *, repeat_s: float, pause_s: float, pause_s_max: float
    ) -> None:
        self.heard = dict(heard)
        self.failures = 0
        self.sentence = ""
        self.next_s = 0.0
        self._repeat_s = repeat_s
        self._pause_s = pause_s
        self._pause_s_max = pause_s_max

    def due(
        self,
        now_s: float,
        firing: Iterable[RaisedAlarm],
        silenced: Callable[[RaisedAlarm], bool],
    ) -> list[AlarmMessage]:
        """Returns what must be sent now, the worst first; nothing while the receiver has a pause.

        Args:
            now_s: the time.
            firing: all alarms that fire, the worst first.
            silenced: whether a person asked for quiet about one; once that ends, it is sent if it still fires.
        """
        alarms = {one.key: one for one in firing}
        for key, held in list(self.heard.items()):
            if key in alarms:
                quiet = held.silenced or silenced(alarms[key])
                self.heard[key] = msgspec.structs.replace(held, gone_s=0.0, silenced=quiet)
            elif not held.gone_s:
                self.heard[key] = msgspec.structs.replace(held, gone_s=now_s)
            elif now_s - held.gone_s > FORGOTTEN_S:
                del self.heard[key]
        if now_s < self.next_s:
            return []
        return [*self._firing(now_s, alarms, silenced), *self._resolved()]

    def took(self, message: AlarmMessage, now_s: float) -> None:
        """The receiver has taken a message."""
        self.failures, self.sentence, self.next_s = 0, "", 0.0
        if message.state == "resolved":
            self.heard.pop(message.alarm.key, None)
        else:
            self.heard[message.alarm.key] = Heard(message.alarm, now_s)

    def failed(self, sentence: str, now_s: float) -> None:
        """The receiver has not taken a message."""
        pause_s = min(self._pause_s * 2 ** min(self.failures, 20), self._pause_s_max)
        self.failures += 1
        self.sentence, self.next_s = sentence, now_s + pause_s

    def _firing(
        self,
        now_s: float,
        alarms: Mapping[str, RaisedAlarm],
        silenced: Callable[[RaisedAlarm], bool],
    ) -> Iterator[AlarmMessage]:
        for key, one in alarms.items():
            held = self.heard.get(key)
            news = held is None or held.silenced or now_s - held.at_s >= self._repeat_s
            if news and not silenced(one):
                yield AlarmMessage("firing", one)

    def _resolved(self) -> Iterator[AlarmMessage]:
        for held in self.heard.values():
            if held.gone_s:
                yield AlarmMessage("resolved", held.alarm)
