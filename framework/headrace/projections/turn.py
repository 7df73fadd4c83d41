"""
Into which generation a live runner folds events, and when that one goes live.

    its version is live           the live one
    another version is live       the one of its own version; newer code makes it, older code waits
    it has all that live has      it goes live, if it is newer and is not kept for a command

Used by the runner, which asks at its start, after a switch, and at intervals. It knows no messages.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from pydantic import BaseModel
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from headrace._runtime.log import get_logger
from headrace.projections.definition.projection import Projection
from headrace.projections.tables import generations
from headrace.projections.tables.origins import ProjectionState, origins_of
from headrace.projections.tables.read_models import ReadModels
from headrace.projections.tables.succession import (
    ahead_of,
    find_own,
    lacks,
    may_go_live,
    take_own,
    why_none,
)

__all__ = ["Turn", "Turned"]

R = TypeVar("R", bound=BaseModel)

# After a look at all aggregates that has found one that is lacking, the next one comes after so many times
# as long as it took: looking costs the database a tenth of its time at most.
_PAUSE_FACTOR: Final = 9
# After the database has refused a switch: mostly a person has to do something before the next attempt.
_REFUSED_PAUSE_S: Final = 60

log = get_logger(__name__)


class Turned(NamedTuple):
    """The generation to fold into, and whether it is the live one."""

    generation: int
    is_live: bool


class Turn(Generic[R]):
    """Where the code of one projection is, among the code of its other versions.

    Args:
        projection: whose code.
        read_models: where the generations are.
        by_itself: a newer generation goes live as soon as it can.
        check_ms: how often is looked while there is nothing to fold into.
        on_wait: hears why, at each new reason.
    """

    def __init__(
        self,
        projection: Projection[R],
        read_models: ReadModels,
        *,
        by_itself: bool,
        check_ms: int,
        on_wait: Callable[[str], None],
    ) -> None:
        self._projection = projection
        self._models = read_models
        self._by_itself = by_itself
        self._check_ms = check_ms
        self._on_wait = on_wait
        self._next_look = 0.0

    async def wait(self) -> Turned:
        """Returns when there is a generation to fold into and the projection is not paused.

        Raises:
            ProjectionError: the generation of this version has other columns.
            ProjectionNotFound: the projection was never set up.
        """
        told = None
        while (turned := await self._take()) is None:
            why = await self._why()
            if why is not None and why != told:
                self._on_wait(told := why)
            await asyncio.sleep(self._check_ms / 1_000)
        return turned

    async def look(self) -> Turned | None:
        """Returns the generation to fold into; None: it has to wait, or makes one."""
        async with self._models.snapshot() as connection:
            state, own = await find_own(connection, self._projection)
        if own is None or state.paused_at is not None:
            return None
        return Turned(own, own == state.generation)

    async def try_to_go_live(self, generation: int) -> bool:
        """Puts a generation in place if it may go live by itself and has all that the live one has.

        A rebuild that is under way ends first. If the database refuses, or is away, that is in the log,
        and folding goes on: a view of yours may need the live table's columns.
        """
        now = asyncio.get_running_loop().time
        if not self._by_itself or now() < self._next_look:
            return False
        try:
            return await self._try_to_go_live(generation)
        except (SQLAlchemyError, OSError) as error:
            self._next_look = now() + _REFUSED_PAUSE_S
            log.warning(
                "rows of a newer version cannot go live",
                projection=self._projection.name,
                version=self._projection.version,
                generation=generation,
                error=str(error),
            )
            return False

    async def _try_to_go_live(self, generation: int) -> bool:
        now = asyncio.get_running_loop().time
        began = now()
        async with self._models.snapshot() as connection:
            state = await self._find_level(connection, generation)
            if state is None:
                return False
            lacking = await lacks(connection, self._projection.name, generation, state.generation)
        if lacking is not None:
            ended = now()
            self._next_look = ended + _PAUSE_FACTOR * (ended - began)
            return False
        owner = state.rebuild_owner
        if owner is not None and await self._models.locks.is_held(owner):
            return False
        async with self._models.begin() as connection:
            state = await generations.lock_state(connection, self._projection.name)
            if state.rebuild_owner != owner:
                return False
            if await self._find_level(connection, generation) is None:
                return False
            await generations.go_live(connection, self._projection, state, generation)
        log.info(
            "rows of a newer version are live",
            projection=self._projection.name,
            version=self._projection.version,
            generation=generation,
            before=state.generation,
        )
        async with self._models.begin() as connection:
            await generations.drop_leftovers(connection, self._projection.name)
        return True

    async def _find_level(
        self, connection: AsyncConnection, generation: int
    ) -> ProjectionState | None:
        """Returns the state if a generation may go live and stands nowhere behind the live one."""
        name = self._projection.name
        state = await generations.get_state(connection, name)
        if not may_go_live(state, await origins_of(connection, name), generation):
            return None
        behind = await ahead_of(connection, name, state.generation, generation)
        return None if behind else state

    async def _take(self) -> Turned | None:
        turned = await self.look()
        if turned is not None and turned.is_live:
            return turned
        state: Any = await self._models.state(self._projection.name)
        if state.paused_at is not None:
            return None
        async with self._models.begin() as connection:
            own = await take_own(connection, self._projection)
            state = await generations.get_state(connection, self._projection.name)
        return None if own is None else Turned(own, own == state.generation)

    async def _why(self) -> str | None:
        async with self._models.snapshot() as connection:
            state, _ = await find_own(connection, self._projection)
            origins = await origins_of(connection, self._projection.name)
        return why_none(state, origins, self._projection)
