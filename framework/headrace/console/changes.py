"""
Changes that take longer than a browser waits: they go on by themselves, and a page says how far they are.

    POST /do/message/resend, confirmed ─▶ BegunChange ─┬─ done within change_wait_ms: the page says what was done
                                                  └─ else: /change?number=7 says how far it is, every second

Used by `pages` and `api`; `console` owns them. A change runs as its user, with the user's connection to the broker: when
the session ends, the change ends, too. What it did stays done, and the same change goes on from there.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from headrace.console.problems import Mistake
from headrace.console.sessions import Session
from headrace.console.verbs.verb import Given, Verb

__all__ = ["BegunChange", "BegunChanges"]

# Changes that have ended and that a page can still tell of.
_KEPT_MAX: Final = 100
# Forms that were sent, the last ones: a page that is loaded again sends its form again.
_FORMS_MAX: Final = 10_000


class BegunChange:
    """One change as it goes on.

    Attributes:
        number: of the change, for its page.
        session: whose it is.
        verb: what is done.
        given: with what.
        back: the page that it was asked for on.
        so_far: how far it is, in words; empty: not told.
    """

    def __init__(
        self, number: int, session: Session, verb: Verb, given: Given, back: str, begun_s: float
    ) -> None:
        self.number = number
        self.session = session
        self.verb = verb
        self.given = given
        self.back = back
        self.begun_s = begun_s
        self.so_far = ""
        self._task = asyncio.create_task(self._run(), name=f"change {number}: {verb.name}")
        session.hold(self._task)

    @property
    def under_way(self) -> bool:
        """Whether it goes on."""
        return not self._task.done()

    async def ends_within(self, wait_ms: int) -> bool:
        """Waits for its end, but no longer than that; returns whether it has ended."""
        await asyncio.wait({self._task}, timeout=wait_ms / 1_000)
        return self._task.done()

    async def end(self) -> Any:
        """Waits for its end, and returns or raises as `result`; a caller that is cancelled ends it."""
        try:
            await asyncio.wait({self._task})
        except asyncio.CancelledError:
            self.cancel()
            raise
        return self.result()

    def result(self) -> Any:
        """Returns what the verb answered, or raises what it raised; it has ended."""
        if self._task.cancelled():
            raise Mistake(
                "you signed out or the console stopped before it was done; do it again, it goes on from there"
            )
        return self._task.result()

    def cancel(self) -> None:
        """Ends it where it is."""
        self._task.cancel()

    def is_like(self, verb: Verb, given: Given) -> bool:
        """Whether it does the same to the same: two at once would do it twice."""
        (what, *_) = [*verb.fields, None]
        return self.verb is verb and (what is None or self.given[what.name] == given[what.name])

    async def _run(self) -> Any:
        if self.verb.slow is None:
            return await self.verb.run(self.session.admin, self.given)
        return await self.verb.slow(self.session.admin, self.given, self._tell)

    def _tell(self, so_far: str) -> None:
        self.so_far = so_far


class BegunChanges:
    """All changes of a console.

    Args:
        under_way_max: how many may go on at once.
        clock: seconds that only grow.
    """

    def __init__(self, under_way_max: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._under_way_max = under_way_max
        self._clock = clock
        self._all: dict[int, BegunChange] = {}
        self._forms: dict[str, int] = {}
        self._number = 0

    def start(
        self, session: Session, verb: Verb, given: Given, back: str, *, once: str = ""
    ) -> BegunChange:
        """Begins a change.

        Args:
            session: whose it is.
            verb: what is done.
            given: with what.
            back: the page that it was asked for on.
            once: of the form that asked about it, which counts once; empty: it came from no form.

        Raises:
            Mistake: the same one goes on already, its form was sent already, or too many go on.
        """
        if once and once in self._forms:
            raise Mistake(
                f"this form was sent already, and its change runs once; see /change?number={self._forms[once]}"
            )
        going = [one for one in self._all.values() if one.under_way]
        if any(one.is_like(verb, given) for one in going if verb.slow is not None):
            raise Mistake(f"{verb.name} goes on already for this; wait until it is done")
        if len(going) >= self._under_way_max:
            raise Mistake("as many changes go on as changes_max allows; wait until one is done")
        self._number += 1
        made = BegunChange(self._number, session, verb, given, back, self._clock())
        self._all[self._number] = made
        if once:
            self._forms[once] = self._number
            if len(self._forms) > _FORMS_MAX:
                del self._forms[next(iter(self._forms))]
        ended = [number for number, one in self._all.items() if not one.under_way]
        for number in ended[: max(0, len(ended) - _KEPT_MAX)]:
            del self._all[number]
        return made

    def find(self, session: Session, number: int) -> BegunChange:
        """Returns a change of a session.

        Raises:
            Mistake: the session has no such change.
        """
        found = self._all.get(number)
        if found is None or found.session is not session:
            raise Mistake(
                f"you have no change {number} here; what it did is on its page and in the audit"
            )
        return found

    def seconds(self, change: BegunChange) -> int:
        """Returns how long ago a change began."""
        return int(self._clock() - change.begun_s)

    def stop(self) -> None:
        """Ends all that go on."""
        for one in self._all.values():
            one.cancel()
