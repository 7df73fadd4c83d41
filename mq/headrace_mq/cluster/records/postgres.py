"""
The record of one group as a row in PostgreSQL: each change is one statement that names the version it saw.

    UPDATE … SET version = version + 1 … WHERE version = $seen        a row: made; no row: refused

Used by the owner of a member; implements `RecordKeeper` with asyncpg. Its server must not lose commits: one server with
a durable disk, a synchronous standby, or a managed one over several zones. A record that went back is noticed by members that saw
a newer one (`went_back`), and by no others.
"""

import asyncio
from collections.abc import Collection, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from headrace_mq.cluster.record import (
    FEATURE_LEVEL,
    RECORD_TIMEOUT_MS,
    GroupRecord,
    Identity,
    LogPlace,
    OutcomeUnknown,
    Proposal,
    RecordUnavailable,
    Refused,
    Registration,
    silence_of,
)
from headrace_mq.errors import MessageQueueError

if TYPE_CHECKING:  # loaded only by brokers of a group
    import asyncpg

__all__ = ["PostgresRecord"]

# After this time a connection that does not close is cut off: its server does not answer.
_CLOSE_MS = 1_000


class PostgresRecord:
    """Keeps the record of one group in a table; it connects at the first call.

    Args:
        url: postgresql://…; several hosts are tried in turn, and one that accepts no changes is left out.
        cluster: name of the cluster.
        group: name of the group in it.
        timeout_ms: longest wait for a connection, and for a statement.
    """

    def __init__(
        self, url: str, *, cluster: str, group: str, timeout_ms: int = RECORD_TIMEOUT_MS
    ) -> None:
        self._url = url.replace("postgresql+asyncpg://", "postgresql://", 1)
        self._key = (cluster, group)
        self._timeout_s = timeout_ms / 1_000
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        # An earlier version may have made the tables; looked at once, before the first statement.
        self._is_complete = False
        # One statement at a time, so that answers come in the order of the calls.
        self._turn = asyncio.Lock()

    async def read(self) -> GroupRecord:
        """Returns the record. Raises RecordUnavailable."""
        row = await self._row(RecordUnavailable, "read", *self._key)
        if row is None:
            raise RecordUnavailable(
                f"the database has no group {self._key[1]!r} of the cluster {self._key[0]!r}; start the"
                " first broker of the group. If it was there before, restore the database"
            )
        return _record_of(row)

    async def create(
        self, leader: Identity, in_sync: Collection[Identity], epoch: int = 1
    ) -> GroupRecord:
        """Makes the table and the record, or returns the one that is there. Raises RecordUnavailable."""
        names, stores = _columns(in_sync)
        self._is_complete = False
        await self._row(RecordUnavailable, "create", *self._key, leader.name, names, stores, epoch)
        return await self.read()

    async def propose(self, proposal: Proposal, group_id: str = "") -> GroupRecord:
        """Changes the record if it has the version that was seen, and the id; committed on return.

        Raises:
            Refused: it has another version, or a later epoch, or is of another group.
            OutcomeUnknown: no answer in time.
        """
        seen, epoch, leader, in_sync, unclean, ack, complete = proposal
        columns = (*_columns(in_sync), unclean, group_id, ack, complete)
        row = await self._row(OutcomeUnknown, "propose", *self._key, seen, epoch, leader, *columns)
        if row is not None:
            return _record_of(row)
        row = await self._row(OutcomeUnknown, "read", *self._key)
        if row is None:
            raise OutcomeUnknown(
                f"the group {self._key[1]!r} is no longer in the database; restore it"
            )
        raise Refused(_record_of(row))

    async def register(
        self, member: Identity, logs: Sequence[LogPlace], level: int = FEATURE_LEVEL
    ) -> frozenset[str]:
        """Keeps a report; returns the names of all that have reported. Raises RecordUnavailable."""
        columns = ([one[at] for one in logs] for at in range(len(LogPlace._fields)))
        row = await self._row(RecordUnavailable, "register", *self._key, *member, *columns, level)
        return frozenset(row["names"] if row is not None else ())

    async def registered(self) -> list[Registration]:
        """Returns the reports with their ages. Raises RecordUnavailable."""
        rows = await self._rows(RecordUnavailable, "registered", *self._key)
        return [
            Registration(
                Identity(name, store), tuple(map(LogPlace, logs, epochs, ends)), age_ms, level
            )
            for name, store, logs, epochs, ends, age_ms, level in rows
        ]

    async def forget(self, name: str) -> None:
        """Drops a report. Raises RecordUnavailable."""
        await self._rows(RecordUnavailable, "forget", *self._key, name)

    async def aclose(self) -> None:
        """Closes the connection."""
        held, self._connection = self._connection, None
        if held is None:
            return
        try:
            await held.close(timeout=_CLOSE_MS / 1_000)
        except Exception:  # noqa: BLE001 - the connection is dropped in any case
            held.terminate()

    async def _row(
        self, failure: type[RecordUnavailable], statement: str, *bound: Any
    ) -> "asyncpg.Record | None":
        rows = await self._rows(failure, statement, *bound)
        return rows[0] if rows else None

    async def _rows(
        self, failure: type[RecordUnavailable], statement: str, *bound: Any
    ) -> "list[asyncpg.Record]":
        asyncpg = _driver()
        async with self._turn:
            try:
                async with asyncio.timeout(2 * self._timeout_s):
                    if self._connection is None or self._connection.is_closed():
                        self._connection = await self._connect(asyncpg)
                    await self._complete(statement)
                    return await self._fetch(statement, *bound)
            except (
                asyncpg.PostgresError,
                asyncpg.InterfaceError,
                # Raised where the server ends the connection while it is asked.
                asyncpg.InternalClientError,
                OSError,
                TimeoutError,
            ) as error:
                # A late answer on it must not be taken for that of the next call.
                held, self._connection = self._connection, None
                if held is not None:
                    held.terminate()
                raise failure(silence_of(self._key[1], error)) from error

    async def _complete(self, statement: str) -> None:
        """Makes what the tables lack. Where there is none, only the start of a group makes them."""
        if self._is_complete:
            return
        # Looks first: a broker's user needs no right to change tables that lack nothing.
        ((is_there, is_complete),) = await self._fetch("complete")
        if not is_complete and (is_there or statement == "create"):
            await self._fetch("table")
        self._is_complete = is_there or statement == "create"

    async def _fetch(self, statement: str, *bound: Any) -> "list[asyncpg.Record]":
        assert self._connection is not None
        return await self._connection.fetch(_statement(statement), *bound, timeout=self._timeout_s)

    async def _connect(self, asyncpg: Any) -> Any:
        return await asyncpg.connect(
            self._url,
            timeout=self._timeout_s,
            target_session_attrs="read-write",
            # Members act on a change as soon as it is answered.
            server_settings={
                "application_name": "headrace broker",
                "synchronous_commit": "on",
                "statement_timeout": str(int(self._timeout_s * 1_000)),
            },
        )


def _columns(in_sync: Collection[Identity]) -> tuple[list[str], list[str]]:
    members = sorted(in_sync)
    return [member.name for member in members], [member.store_id for member in members]


def _record_of(row: Any) -> GroupRecord:
    version, epoch, leader, names, stores, unclean, lossy, group_id, ack = row
    members = frozenset(map(Identity, names, stores))
    return GroupRecord(version, epoch, leader, members, unclean, lossy, group_id, ack)


def _driver() -> Any:
    try:
        import asyncpg
    except ImportError as error:
        raise MessageQueueError(
            "a group's record in PostgreSQL needs asyncpg: pip install 'headrace[postgres]'"
        ) from error
    return asyncpg


def _statement(name: str) -> str:
    folder = files("headrace_mq.cluster.records") / "sql"
    content = (folder / f"{name}.sql").read_text(encoding="utf-8")
    return "\n".join(line for line in content.splitlines() if not line.startswith("--"))
