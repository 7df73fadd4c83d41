"""
The record of one group as a key in etcd: each change is a transaction that names the revision it saw.

    headrace/default/g1 = {"version":7,"epoch":3,"leader":"a","in_sync":[["a","…"],["b","…"]]}
    headrace/default/g1#id = the id of the group
    headrace/default/g1#ack = who acknowledges, once that was changed
    headrace/default/g1/a = what broker a reported last

    read: version 7, at revision 41 ─▶ IF mod_revision = 41 THEN put ELSE get        put: made; got: refused

Used by the owner of a member; implements `RecordKeeper` over etcd's JSON gateway, with no library. A majority of etcd's
members has each change on its disk before it is answered, so a record does not go back while most of them live. The id has a
key of its own, and so has who acknowledges, because brokers of earlier versions write the record without them. No lease and no lock is used: a lock of etcd is
none while its holder is paused. The age of a report is by the clocks of etcd's members.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Collection, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, unquote

import msgspec

from headrace_mq.cluster.record import (
    ACK_IN_SYNC,
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
from headrace_mq.cluster.records.etcd_gateway import EtcdGateway, parse_etcd
from headrace_mq.errors import LoginFailed, TlsFailed

__all__ = ["EtcdRecord"]

T = TypeVar("T")


class _Pair(msgspec.Struct, frozen=True):
    key: bytes
    mod_revision: int
    value: bytes = b""


class _Found(msgspec.Struct, frozen=True):
    kvs: tuple[_Pair, ...] = ()


class _Done(msgspec.Struct, frozen=True):
    response_range: _Found = _Found()


class _Outcome(msgspec.Struct, frozen=True):
    succeeded: bool = False
    responses: tuple[_Done, ...] = ()


class _Stored(msgspec.Struct, frozen=True):
    version: int
    epoch: int
    leader: str
    in_sync: list[Identity]
    unclean: int = 0
    lossy: int = 0


class _Report(msgspec.Struct, frozen=True):
    member: Identity
    logs: tuple[LogPlace, ...]
    reported_at_ms: int
    level: int = 0


class _Nothing(msgspec.Struct, frozen=True):
    """What no one needs of an answer."""


class EtcdRecord:
    """Keeps the record of one group under a key.

    Args:
        url: etcd://HOST:PORT,HOST:PORT or etcds://…; members are tried in turn.
        cluster: name of the cluster.
        group: name of the group in it.
        timeout_ms: longest wait for a connection, and for an answer.

    Raises:
        MessageQueueError: the URL is none; shows an example.
    """

    def __init__(
        self, url: str, *, cluster: str, group: str, timeout_ms: int = RECORD_TIMEOUT_MS
    ) -> None:
        self._gateway = EtcdGateway(parse_etcd(url), timeout_ms=timeout_ms)
        self._cluster, self._group = cluster, group
        self._key = f"headrace/{quote(cluster, safe='')}/{quote(group, safe='')}"
        # No name has this sign once it is quoted.
        self._id_key = f"{self._key}#id"
        self._ack_key = f"{self._key}#ack"
        self._limit_s = 2 * timeout_ms / 1_000
        # One at a time, so that answers come in the order of the calls.
        self._turn = asyncio.Lock()

    async def read(self) -> GroupRecord:
        """Returns the record, which most members of etcd agree on. Raises RecordUnavailable."""
        found = await self._in_turn(RecordUnavailable, self._found())
        if found is None:
            raise RecordUnavailable(
                f"etcd has no group {self._group!r} of the cluster {self._cluster!r}; start the first broker of"
                " the group. If it was there before, restore etcd"
            )
        return found[0]

    async def create(
        self, leader: Identity, in_sync: Collection[Identity], epoch: int = 1
    ) -> GroupRecord:
        """Makes the record, or returns the one that is there. Raises RecordUnavailable."""
        made = GroupRecord(1, epoch, leader.name, frozenset(in_sync), group_id=str(uuid.uuid4()))
        return await self._in_turn(RecordUnavailable, self._made(made))

    async def propose(self, proposal: Proposal, group_id: str = "") -> GroupRecord:
        """Changes the record if it has the version that was seen, and the id; most members of etcd have it on return.

        Raises:
            Refused: it has another version, or a later epoch, or is of another group.
            OutcomeUnknown: no answer in time.
        """
        return await self._in_turn(OutcomeUnknown, self._changed(proposal, group_id))

    async def register(
        self, member: Identity, logs: Sequence[LogPlace], level: int = FEATURE_LEVEL
    ) -> frozenset[str]:
        """Keeps a report; returns the names of all that have reported. Raises RecordUnavailable."""
        return await self._in_turn(RecordUnavailable, self._reported(member, tuple(logs), level))

    async def registered(self) -> list[Registration]:
        """Returns the reports with their ages. Raises RecordUnavailable."""
        return await self._in_turn(RecordUnavailable, self._reports())

    async def forget(self, name: str) -> None:
        """Drops a report. Raises RecordUnavailable."""
        dropped = self._gateway.ask("/v3/kv/deleterange", {"key": self._report_key(name)}, _Nothing)
        await self._in_turn(RecordUnavailable, dropped)

    async def aclose(self) -> None:
        """Has no connection to give back: each question has its own."""

    async def _in_turn(self, failure: type[RecordUnavailable], work: Awaitable[T]) -> T:
        async with self._turn:
            try:
                async with asyncio.timeout(self._limit_s):
                    return await work
            except RecordUnavailable as error:
                raise failure(str(error)) from error
            except (OSError, LoginFailed, TlsFailed) as error:
                raise failure(silence_of(self._group, error)) from error

    async def _found(self) -> tuple[GroupRecord, int] | None:
        """Returns the record and its revision; None: there is none."""
        outcome = await self._gateway.ask("/v3/kv/txn", {"success": self._asked()}, _Outcome)
        found = self._record_in(outcome)
        if found is None or found[0].group_id:
            return found
        # Of an earlier version: the first one that looks gives it an id.
        given = _put_of(self._id_key, str(uuid.uuid4()).encode())
        asked = {"compare": [_is_new(self._id_key)], "success": [given], "failure": []}
        await self._gateway.ask("/v3/kv/txn", asked, _Outcome)
        return await self._found()

    async def _made(self, record: GroupRecord) -> GroupRecord:
        given = _put_of(self._id_key, record.group_id.encode())
        # Of a group of that name that was deleted.
        reset = {"request_delete_range": _of(self._ack_key)}
        return await self._put(record, _is_new(self._key), given, reset) or record

    async def _changed(self, proposal: Proposal, group_id: str) -> GroupRecord:
        found = await self._found()
        if found is None:
            raise self._gone()
        held, revision = found
        is_other = group_id not in {"", held.group_id}
        if is_other or held.version != proposal.seen or proposal.epoch < held.epoch:
            raise Refused(held)
        record = held.changed(proposal)
        as_found = {**_of(self._key), "target": "MOD", "mod_revision": str(revision)}
        more = [_put_of(self._ack_key, record.ack.encode())] if record.ack != held.ack else []
        other = await self._put(record, {**as_found, "result": "EQUAL"}, *more)
        if other is not None:
            raise Refused(other)
        return record

    async def _put(
        self, record: GroupRecord, condition: dict[str, Any], *more: dict[str, Any]
    ) -> GroupRecord | None:
        """Writes the record, and more, if the condition holds; returns the one that is there if not."""
        version, epoch, leader, in_sync, unclean, lossy = record[:6]
        stored = _Stored(version, epoch, leader, sorted(in_sync), unclean, lossy)
        put = _put_of(self._key, msgspec.json.encode(stored))
        asked = {"compare": [condition], "success": [put, *more], "failure": self._asked()}
        outcome = await self._gateway.ask("/v3/kv/txn", asked, _Outcome)
        if outcome.succeeded:
            return None
        found = self._record_in(outcome)
        if found is None:
            raise self._gone()
        return found[0]

    def _asked(self) -> list[dict[str, Any]]:
        """Asks for the record, its id, and who acknowledges, as they are at one moment."""
        keys = (self._key, self._id_key, self._ack_key)
        return [{"request_range": _of(key)} for key in keys]

    def _record_in(self, outcome: _Outcome) -> tuple[GroupRecord, int] | None:
        pairs = {
            pair.key.decode(): pair for one in outcome.responses for pair in one.response_range.kvs
        }
        if self._key not in pairs:
            return None
        record, revision = _record_of(pairs[self._key])
        given, ack = (
            pairs[key].value.decode("utf-8", "replace") if key in pairs else ""
            for key in (self._id_key, self._ack_key)
        )
        return record._replace(group_id=given, ack=ack or ACK_IN_SYNC), revision

    async def _reported(
        self, member: Identity, logs: tuple[LogPlace, ...], level: int
    ) -> frozenset[str]:
        # For the time that etcd has.
        await self._found()
        report = _Report(member, logs, self._gateway.answered_at_ms, level)
        put = {"key": self._report_key(member.name), "value": msgspec.json.encode(report)}
        names = {**self._every_report(), "keys_only": True}
        asked = {"success": [{"request_put": put}, {"request_range": names}]}
        outcome = await self._gateway.ask("/v3/kv/txn", asked, _Outcome)
        keys = [pair.key.decode() for each in outcome.responses for pair in each.response_range.kvs]
        return frozenset(unquote(key.rpartition("/")[2]) for key in keys)

    async def _reports(self) -> list[Registration]:
        found = await self._gateway.ask("/v3/kv/range", self._every_report(), _Found)
        now_ms = self._gateway.answered_at_ms
        reports = [_read(pair, _Report) for pair in found.kvs]
        return [
            Registration(one.member, one.logs, max(0, now_ms - one.reported_at_ms), one.level)
            for one in sorted(reports, key=lambda one: one.member)
        ]

    def _report_key(self, name: str) -> bytes:
        return f"{self._key}/{quote(name, safe='')}".encode()

    def _every_report(self) -> dict[str, Any]:
        # Up to the byte after the slash.
        return {"key": f"{self._key}/".encode(), "range_end": f"{self._key}0".encode()}

    def _gone(self) -> RecordUnavailable:
        return RecordUnavailable(f"the group {self._group!r} is no longer in etcd; restore it")


def _of(key: str) -> dict[str, Any]:
    return {"key": key.encode()}


def _put_of(key: str, value: bytes) -> dict[str, Any]:
    return {"request_put": {**_of(key), "value": value}}


def _is_new(key: str) -> dict[str, Any]:
    """Holds where the key is not there."""
    return {**_of(key), "target": "CREATE", "create_revision": "0", "result": "EQUAL"}


def _record_of(pair: _Pair) -> tuple[GroupRecord, int]:
    stored = _read(pair, _Stored)
    members = frozenset(stored.in_sync)
    found = GroupRecord(
        stored.version, stored.epoch, stored.leader, members, stored.unclean, stored.lossy
    )
    return found, pair.mod_revision


def _read(pair: _Pair, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(pair.value, type=kind)
    except msgspec.MsgspecError as error:
        raise RecordUnavailable(
            f"the value of the key {pair.key.decode()} in etcd cannot be read ({error}); put the last good one there"
        ) from error
