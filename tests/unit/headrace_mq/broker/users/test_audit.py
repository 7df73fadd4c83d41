"""The audit: each entry has who, what, where from and outcome; a flood of them has a bound."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace_mq.access.audit import (
    AUDIT_TOPIC,
    CHANGES,
    CHANGES_BY_OTHERS,
    KINDS,
    LEFT_OUT,
    LOGINS,
    REFUSALS,
    TEXT_BYTES_MAX,
    AuditEntry,
)
from headrace_mq.archive.pending_queries import QueryPending
from headrace_mq.broker.users.audit import Audit, AuditLimits
from headrace_mq.broker.users.refusals import SAME_REFUSAL_MS
from headrace_mq.errors import BrokerStopping, NotPermitted, StoreFull
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import decode_records, read_header
from headrace_mq.store.log.commit_gate import Durable
from headrace_mq.store.message_store import Appended


class Clock:
    """A clock that stands still until it is moved."""

    now = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now


class Kept:
    """A store that keeps entries in memory, and makes them durable when it is told to."""

    def __init__(self) -> None:
        self.entries: dict[int, list[tuple[str, AuditEntry]]] = {n: [] for n in range(len(KINDS))}
        self.failure: Exception | None = None
        self.cycle: Durable | None = None

    def range(self, queue: QueueRef) -> tuple[int, int]:
        assert queue.topic == AUDIT_TOPIC
        return 0, len(self.entries[queue.queue_id])

    def append(self, batch: bytearray, *, retention: str) -> Appended:
        if self.failure is not None:
            raise self.failure
        assert retention == "compact"
        queue = read_header(batch).queue.queue_id
        (record,) = decode_records(batch)
        self.entries[queue].append((record.key, AuditEntry.decode(record.body)))
        return Appended(len(self.entries[queue]) - 1, duplicate=False)

    def durable(self) -> Durable:
        self.cycle = self.cycle or Durable()
        return self.cycle

    def of(self, kind: int) -> list[AuditEntry]:
        return [entry for _, entry in self.entries[kind]]


class Client:
    """What the audit sees of a connection."""

    def __init__(self, user: str = "ann", host: str = "10.0.0.1", principal: str = "") -> None:
        self.user, self.host, self.principal = user, host, principal
        self.peer = f"{host}:4000"


class Desk:
    """An audit with three entries of each kind per second, and ten that it keeps."""

    def __init__(self) -> None:
        self.clock, self.kept, self.closed = Clock(), Kept(), False
        limits = AuditLimits(
            entries_max=10, per_second_max=3, refusals_per_minute_max=5, retention="compact"
        )
        store: Any = self.kept
        self.audit = Audit(
            store,
            self.clock,
            limits,
            lambda: self.closed,
            lambda client: client.user != "guest",
            lambda name: name == "root",
        )

    def client(self, *names: str, **more: str) -> Any:
        return Client(*names, **more)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_an_entry_has_user_action_resource_address_outcome_and_time(desk: Desk) -> None:
    with capture_logs() as logs:
        desk.audit.note(
            desk.client(), "set_quota", "done", resource="cluster", detail="kind=client"
        )
    (entry,) = desk.kept.of(CHANGES)
    assert entry == AuditEntry(
        at_ms=desk.clock.now, user="ann", action="set_quota", resource="cluster",
        address="10.0.0.1:4000", outcome="done", detail="kind=client",
    )  # fmt: skip
    assert logs == [
        {
            "event": "audit", "log_level": "info", "user": "ann", "action": "set_quota",
            "resource": "cluster", "address": "10.0.0.1:4000", "outcome": "done", "detail": "kind=client",
        }
    ]  # fmt: skip


def test_without_a_login_an_entry_names_the_subject_of_the_certificate(desk: Desk) -> None:
    desk.audit.note(desk.client("", principal="CN=reports"), "create_topic", "done")
    assert desk.kept.of(CHANGES)[0].user == "CN=reports"


def test_logins_changes_and_refusals_do_not_push_each_other_out(desk: Desk) -> None:
    client = desk.client()
    desk.audit.note(client, "login", "done")
    desk.audit.note(client, "login", "failed")
    desk.audit.note(client, "set_rule", "failed")
    desk.audit.refuse(client, "fetch", resource="topic:t", detail="needs consume")
    told = [[(one.action, one.outcome) for one in desk.kept.of(kind)] for kind in range(3)]
    assert told == [
        [("set_rule", "failed")],
        [("login", "done")],
        [("login", "failed"), ("fetch", "refused")],
    ]


def test_a_flood_of_failures_is_counted_and_the_count_is_an_entry(desk: Desk) -> None:
    with capture_logs() as logs:
        for number in range(100):
            desk.audit.note(desk.client("", str(number)), "login", "failed", resource="user:root")
        assert len(logs) == len(desk.kept.of(REFUSALS)) == 3
        desk.audit.look()
        assert len(desk.kept.of(REFUSALS)) == 3
        desk.clock.now += 1_000
        desk.audit.look()
    told = desk.kept.of(REFUSALS)[-1]
    assert (told.action, told.outcome, told.more) == ("refusals", LEFT_OUT, 97)
    desk.audit.look()
    assert len(desk.kept.of(REFUSALS)) == 4
    desk.audit.note(desk.client(), "login", "failed")
    assert len(desk.kept.of(REFUSALS)) == 5


def test_a_count_of_left_out_entries_comes_before_the_next_entry_and_at_the_end(desk: Desk) -> None:
    for _ in range(2):
        for _ in range(5):
            desk.audit.note(desk.client(), "login", "done")
        desk.clock.now += 1_000
    desk.audit.look(ending=True)
    assert [one.more for one in desk.kept.of(LOGINS) if one.outcome == LEFT_OUT] == [2, 2]


def test_changes_are_never_left_out(desk: Desk) -> None:
    for _ in range(100):
        desk.audit.note(desk.client(), "set_rule", "done")
    assert len(desk.kept.of(CHANGES)) == desk.audit.changes == 100


def test_each_entry_has_the_key_of_the_one_that_it_replaces(desk: Desk) -> None:
    for _ in range(12):
        desk.audit.note(desk.client(), "set_rule", "done")
    assert [key for key, _ in desk.kept.entries[CHANGES]] == [str(n % 10) for n in range(12)]
    desk.audit.note(desk.client(), "login", "done")
    assert [key for key, _ in desk.kept.entries[LOGINS]] == ["0"]


def test_the_same_refusal_is_written_once_a_minute_with_how_often_it_came(desk: Desk) -> None:
    def refuse(host: str = "10.0.0.1") -> None:
        desk.audit.refuse(desk.client("ann", host), "fetch", resource="topic:t")

    for _ in range(3):
        refuse()
    refuse("10.0.0.2")
    assert [one.more for one in desk.kept.of(REFUSALS)] == [0, 0]
    desk.clock.now += SAME_REFUSAL_MS
    refuse()
    assert [one.more for one in desk.kept.of(REFUSALS)] == [0, 0, 2, 0]
    refuse()
    desk.clock.now += SAME_REFUSAL_MS
    desk.audit.look()
    assert [one.more for one in desk.kept.of(REFUSALS)] == [0, 0, 2, 0, 1]


def test_changes_of_users_do_not_push_out_those_of_administrators(desk: Desk) -> None:
    root, guest = desk.client("root"), desk.client("guest")
    desk.audit.note(guest, "describe_topics", "done", detail="create")
    with desk.audit.noting(guest, "set_password"), desk.audit.noting(root, "set_user"):
        pass
    with pytest.raises(StoreFull), desk.audit.noting(guest, "create_topic"):
        raise StoreFull("full")
    assert [one.action for one in desk.kept.of(CHANGES)] == ["set_user"]
    others = [(one.action, one.outcome) for one in desk.kept.of(CHANGES_BY_OTHERS)]
    assert others == [
        ("describe_topics", "done"), ("set_password", "done"), ("create_topic", "failed"),
    ]  # fmt: skip
    assert desk.audit.changes == 4


def test_a_change_that_takes_the_right_to_administer_is_one_of_an_administrator(desk: Desk) -> None:
    client = desk.client("root")
    with desk.audit.noting(client, "set_user"):
        client.user = "guest"
    assert len(desk.kept.of(CHANGES)) == 1


def test_a_client_that_is_refused_all_the_time_takes_a_share_of_the_audit(desk: Desk) -> None:
    def of_ann() -> list[AuditEntry]:
        return [one for one in desk.kept.of(REFUSALS) if one.user == "ann"]

    def refuse(first: int) -> None:
        for number in range(first, first + 100):
            desk.clock.now += 550
            with pytest.raises(NotPermitted), desk.audit.noting(desk.client(), f"set{number}"):
                raise NotPermitted("no")
            desk.audit.look()

    refuse(0)
    assert len(of_ann()) == 5
    desk.audit.refuse(desk.client("bob"), "fetch", resource="topic:t")
    assert desk.kept.of(REFUSALS)[-1].user == "bob"
    refuse(100)
    desk.audit.look(ending=True)
    written = of_ann()
    assert len(written) == 2 * 5 + 2
    left_out = [one for one in written if one.outcome == LEFT_OUT]
    assert [(one.action, one.address) for one in left_out] == [("refusals", "10.0.0.1:4000")] * 2
    assert sum(one.more for one in left_out) + 2 * 5 == 200


def test_long_texts_are_cut(desk: Desk) -> None:
    desk.audit.note(desk.client("x" * 9_000), "login", "failed", resource="y" * 9_000)
    (entry,) = desk.kept.of(REFUSALS)
    assert len(entry.user.encode()) == len(entry.resource.encode()) == TEXT_BYTES_MAX


def test_a_block_is_written_with_how_it_ended(desk: Desk) -> None:
    client = desk.client()
    with desk.audit.noting(client, "a", detail="x=1"):
        pass
    for error in (StoreFull("full"), RuntimeError("secret"), NotPermitted("no")):
        with pytest.raises(type(error)), desk.audit.noting(client, "b", detail="x=1"):
            raise error
    told = [(one.outcome, one.detail) for one in desk.kept.of(CHANGES)]
    assert told == [
        ("done", "x=1"), ("failed", "full (x=1)"), ("failed", "a defect; see the log (x=1)"),
    ]  # fmt: skip
    assert [one.outcome for one in desk.kept.of(REFUSALS)] == ["refused"]


async def test_a_request_that_comes_again_is_not_written_yet(desk: Desk) -> None:
    waits = QueryPending(asyncio.get_running_loop().create_future())
    with pytest.raises(QueryPending), desk.audit.noting(desk.client(), "a"):
        raise waits
    assert desk.kept.of(CHANGES) == []


async def test_an_answer_waits_until_the_entry_is_durable_and_no_longer(desk: Desk) -> None:
    answered: list[int] = []
    failed: list[Exception] = []
    desk.audit.hold(lambda: answered.append(1), failed.append)
    draining = asyncio.ensure_future(desk.audit.drain())
    await asyncio.sleep(0)
    assert (answered, draining.done()) == ([], False)
    assert desk.kept.cycle is not None
    desk.kept.cycle.settle(None)
    assert answered == [1]
    await draining
    desk.audit.hold(lambda: answered.append(2), failed.append)
    assert (answered, failed) == ([1, 2], [])


async def test_a_change_that_replicas_may_lack_is_not_answered_as_done(desk: Desk) -> None:
    answered: list[int] = []
    failed: list[Exception] = []
    desk.audit.hold(lambda: answered.append(1), failed.append)
    assert desk.kept.cycle is not None
    desk.kept.cycle.settle(BrokerStopping("the broker ended"))
    desk.audit.hold(lambda: answered.append(2), failed.append)
    assert answered == []
    assert [type(one) for one in failed] == [BrokerStopping] * 2
    assert "its outcome is unknown" in str(failed[0])
    await desk.audit.drain()
    desk.kept.cycle = Durable()
    desk.kept.cycle.settle(StoreFull("no room"))  # then the entries stand in the log
    desk.audit.hold(lambda: answered.append(3), failed.append)
    assert (answered, len(failed)) == ([3], 2)


def test_a_disk_that_takes_no_entry_leaves_it_to_the_log_and_says_so_once(desk: Desk) -> None:
    desk.kept.failure = StoreFull("no room")
    with capture_logs() as logs:
        for _ in range(3):
            desk.audit.note(desk.client(), "set_rule", "done")
    assert [one["event"] for one in logs].count("the audit stands in the log alone") == 1
    assert [one["event"] for one in logs].count("audit") == 3
    desk.kept.failure, desk.closed = None, True
    desk.audit.note(desk.client(), "set_rule", "done")
    assert desk.kept.of(CHANGES) == []


def test_logins_as_a_user_stand_in_the_audit_behind_many_with_invented_names(desk: Desk) -> None:
    stranger = desk.client("")
    for name in [*(f"junk{number}" for number in range(30)), *["root"] * 3]:
        desk.clock.now += 500
        desk.audit.note(stranger, "login", "failed", resource=f"user:{name}", detail="wrong")
    named = [one.resource for one in desk.kept.of(REFUSALS)]
    assert (len(named), named[-1]) == (6, "user:root")
