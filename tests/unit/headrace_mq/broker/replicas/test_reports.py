"""A broker reports now and then where its logs end, and hears which others there are."""

from typing import Any

import pytest

from headrace_mq.broker.replicas.reports import Reports, without_removed
from headrace_mq.cluster.operations import REPORT_MS
from headrace_mq.cluster.record import Identity, LogPlace, RecordUnavailable
from headrace_mq.cluster.records.memory import MemoryRecord


class At:
    """A clock that stands."""

    def __init__(self) -> None:
        self.ms = 5

    def monotonic_ms(self) -> int:
        return self.ms

    now_ms = monotonic_ms


async def test_a_broker_reports_its_logs_when_it_is_time_to(places: Any) -> None:
    me, record, clock = Identity("a", "1"), MemoryRecord(), At()
    await record.create(me, [me])
    await record.register(Identity("b", "2"), [])
    reports = Reports(places[0].logs, record, clock)
    assert reports.names is None
    await reports.report(me)
    assert reports.names == {"a", "b"}
    await record.forget("a")
    await reports.report(me)
    assert [each.member.name for each in await record.registered()] == ["b"]
    clock.ms += REPORT_MS
    await reports.report(me)
    mine = (await record.registered())[0]
    assert mine.logs == tuple(LogPlace(log, 0, 0) for log in ("forever", "transient", "compact"))


async def test_a_report_that_was_not_taken_is_made_again_at_once(places: Any) -> None:
    me, record, clock = Identity("a", "1"), MemoryRecord(), At()
    await record.create(me, [me])
    reports = Reports(places[0].logs, record, clock)
    record.is_away = True
    with pytest.raises(RecordUnavailable):
        await reports.report(me)
    record.is_away = False
    await reports.report(me)
    assert reports.names == {"a"}


def test_a_removed_broker_counts_only_while_it_is_heard_or_in_sync() -> None:
    a, b, c = (Identity(name, "1") for name in "abc")
    assert without_removed({a, b, c}, {c}, None) == {a, b, c}
    assert without_removed({a, b, c}, {c}, {"a"}) == {a, c}
