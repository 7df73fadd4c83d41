from headrace_mq.archive.backlog import Backlog
from headrace_mq.settings import ArchiveSettings

SETTINGS = ArchiveSettings(
    url="postgresql://x", alarm_age_ms=1_000, alarm_bytes=500, backlog_bytes_max=800
)


def test_the_alarm_comes_by_age_and_goes_when_nothing_waits() -> None:
    backlog = Backlog(SETTINGS)
    backlog.seen(10, 0)
    assert not backlog.judge(10, 1_000, 10)
    backlog.failed("the database sleeps")
    assert backlog.judge(10, 1_001, 10)
    assert backlog.alarm == "10 bytes wait for the archive, the oldest for 1 s: the database sleeps"
    assert not backlog.judge(10, 9_000, 10)
    backlog.seen(0, 9_001)
    assert backlog.judge(0, 9_001, 0)
    assert backlog.alarm == ""


def test_the_alarm_comes_by_size_at_once() -> None:
    backlog = Backlog(SETTINGS)
    backlog.seen(501, 0)
    assert backlog.judge(501, 0, 501)
    assert "slower than the producers" in backlog.alarm


def test_the_backlog_is_as_old_as_the_last_archived_message() -> None:
    backlog = Backlog(SETTINGS)
    backlog.seen(10, 100)
    backlog.seen(10, 5_000)
    assert backlog.age_ms(6_000) == 5_900
    backlog.archived(5_500)
    assert backlog.age_ms(6_000) == 500
    backlog.archived(20)
    assert backlog.age_ms(6_000) == 500


def test_an_idle_time_is_nobodys_age() -> None:
    backlog = Backlog(SETTINGS)
    backlog.seen(0, 0)
    backlog.archived(0)
    assert backlog.age_ms(99_999) == 0
    backlog.seen(10, 99_999)
    assert backlog.age_ms(99_999) == 0


def test_messages_are_refused_above_the_bound_and_taken_again_below() -> None:
    backlog = Backlog(SETTINGS)
    assert backlog.refusal(800) == ""
    backlog.failed("the database sleeps")
    assert "801 bytes wait" in backlog.refusal(801)
    assert "the database sleeps" in backlog.refusal(801)
    backlog.worked()
    assert "the database sleeps" not in backlog.refusal(801)
    assert backlog.refusal(799) == ""


def test_messages_that_may_be_archived_raise_no_alarm_by_size() -> None:
    backlog = Backlog(SETTINGS)
    assert not backlog.judge(9_000, 0, 500)
    assert backlog.judge(9_000, 0, 501)
    assert "9000 bytes wait" in backlog.alarm
