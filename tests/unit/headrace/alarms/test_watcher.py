"""A watcher tells of each change, goes on after a restart, and is held up by no receiver."""

import asyncio
import threading
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace.alarms.folder import AlarmFolder
from headrace.alarms.outbox import AlarmMessage
from headrace.alarms.promql.history import Figure
from headrace.alarms.rules.table import RULES
from headrace.alarms.settings import AlarmSettings, AlarmTarget
from headrace.alarms.watcher import AlarmWatcher, send_test
from headrace.errors import ExtraMissing, HeadraceError
from headrace.testing.history import FakeClock


class Taker:
    """A receiver that keeps what it is sent, or fails."""

    def __init__(self, name: str = "duty") -> None:
        self.name = name
        self.sent: list[tuple[str, str]] = []
        self.error: Exception | None = None

    def send(self, message: AlarmMessage) -> None:
        if self.error is not None:
            raise self.error
        self.sent.append((message.state, message.alarm.rule))


class Fixture:
    """A watcher of one broker, on a clock that a test moves."""

    def __init__(self, settings: AlarmSettings) -> None:
        self.settings = settings
        self.clock = FakeClock()
        self.taker = Taker()
        self.figures: list[Figure] | Exception = [Figure("headrace_broker_read_only", {}, 1.0)]
        self.watcher = self.begun()

    def begun(self, *receivers: Any) -> AlarmWatcher:
        """A watcher, as a new process has it."""
        return AlarmWatcher(
            self.settings,
            read=self._read,
            receivers=receivers or [self.taker],
            clock=self.clock,
        )

    def _read(self, _: object) -> list[Figure]:
        if isinstance(self.figures, Exception):
            raise self.figures
        return self.figures

    async def look(self, after_ms: int = 15_000) -> None:
        self.clock.advance(after_ms)
        await self.watcher.look()
        await self.watcher.settle()


@pytest.fixture
def watched(settings) -> Fixture:
    return Fixture(settings())


def rule_names(watched: Fixture) -> list[str]:
    return [one.rule for one in AlarmFolder(watched.settings.folder).state().alarms if one.fired_s]


async def test_a_change_is_told_once_and_its_end_too(watched) -> None:
    await watched.look()
    await watched.look()
    assert watched.taker.sent == [("firing", "HeadraceStoreReadOnly")]
    watched.figures = [Figure("headrace_broker_read_only", {}, 0.0)]
    await watched.look()
    assert watched.taker.sent[1:] == [("resolved", "HeadraceStoreReadOnly")]
    assert rule_names(watched) == []


async def test_an_alarm_that_goes_on_is_told_again(watched) -> None:
    await watched.look()
    await watched.look(watched.settings.repeat_ms)
    assert [state for state, _ in watched.taker.sent] == ["firing", "firing"]


async def test_a_broker_that_does_not_answer_is_an_alarm_after_a_minute(watched) -> None:
    watched.figures = OSError("refused")
    for _ in range(4):
        await watched.look()
    assert watched.taker.sent == []
    await watched.look()
    assert watched.taker.sent == [("firing", "HeadraceBrokerDown")]
    (target,) = AlarmFolder(watched.settings.folder).state().targets
    assert (target.up, target.sentence) == (False, "refused")


async def test_a_name_server_that_does_not_answer_is_an_alarm_of_its_own(settings) -> None:
    target = {"url": "http://127.0.0.1:9466/metrics", "job": "headrace-nameserver"}
    watched = Fixture(settings(target=[target]))
    watched.figures = OSError("refused")
    for _ in range(4):
        await watched.look()
    assert watched.taker.sent == []
    await watched.look()
    assert watched.taker.sent == [("firing", "HeadraceNameServerDown")]
    watched.figures = []
    await watched.look()
    assert watched.taker.sent[1:] == [("resolved", "HeadraceNameServerDown")]


async def test_an_alarm_stays_while_its_broker_does_not_answer(watched) -> None:
    await watched.look()
    watched.figures = OSError("refused")
    await watched.look()
    assert rule_names(watched) == ["HeadraceStoreReadOnly"]
    assert watched.taker.sent == [("firing", "HeadraceStoreReadOnly")]


class Brokers:
    """What the brokers of a group answer, by their ports; one that is not there does not answer."""

    def __init__(self, settings: Any) -> None:
        targets = [{"url": f"http://127.0.0.1:{port}/metrics"} for port in (1, 2)]
        self.watched = Fixture(settings(target=targets))
        self.leads: dict[int, float] = {1: 1.0, 2: 0.0}
        self.in_sync = 1.0
        self.watched._read = self._answer  # type: ignore[method-assign]  # of two brokers
        self.watched.watcher = self.watched.begun()

    def _answer(self, target: Any) -> list[Figure]:
        port = int(target.instance.rpartition(":")[2])
        if port not in self.leads:
            raise OSError("refused")
        group = {"cluster": "default", "group": "g1"}
        leads = self.leads[port]
        found = [Figure("headrace_broker_leads", group, leads)]
        if leads:
            of_replica = {**group, "replica": "r"}
            found.append(Figure("headrace_broker_replica_in_sync", of_replica, self.in_sync))
        return found

    async def look(self, times: int) -> set[str]:
        """The alarms that fire after some looks, without those of a broker that is away."""
        for _ in range(times):
            await self.watched.look()
        return set(rule_names(self.watched)) - {"HeadraceBrokerDown"}


async def test_a_group_has_a_leader_again_although_the_last_one_stays_away(settings) -> None:
    brokers = Brokers(settings)
    assert await brokers.look(4) == set()
    brokers.leads = {2: 0.0}
    assert await brokers.look(4) == {"HeadraceNoLeader"}
    brokers.leads = {}
    assert await brokers.look(1) == {"HeadraceNoLeader"}, "unknown"
    brokers.leads = {2: 1.0}
    assert await brokers.look(1) == set()
    assert brokers.watched.taker.sent[-1] == ("resolved", "HeadraceNoLeader")


async def test_what_a_leader_said_of_its_replicas_ends_with_its_lead(settings) -> None:
    brokers = Brokers(settings)
    brokers.in_sync = 0.0
    assert await brokers.look(22) == {"HeadraceReplicaOutOfSync"}
    brokers.leads, brokers.in_sync = {2: 0.0}, 1.0
    assert await brokers.look(1) == {"HeadraceReplicaOutOfSync"}, "no other one knows better"
    brokers.leads = {2: 1.0}
    assert await brokers.look(1) == set()


async def test_a_restart_tells_nothing_again_and_forgets_nothing(watched) -> None:
    await watched.look()
    watched.watcher = watched.begun()
    await watched.look()
    assert watched.taker.sent == [("firing", "HeadraceStoreReadOnly")]
    watched.figures = [Figure("headrace_broker_read_only", {}, 0.0)]
    watched.watcher = watched.begun()
    await watched.look()
    assert watched.taker.sent[1:] == [("resolved", "HeadraceStoreReadOnly")]


async def test_a_rule_about_an_hour_does_not_end_when_the_watcher_begins_again(watched) -> None:
    refused = Figure("headrace_broker_logins_refused_total", {}, 0.0)
    watched.figures = [refused]
    await watched.look()
    watched.figures = [refused._replace(value=500.0)]
    await watched.look()
    assert rule_names(watched) == ["HeadraceLoginsRefused"]
    watched.watcher = watched.begun()
    await watched.look()
    assert rule_names(watched) == ["HeadraceLoginsRefused"]
    await watched.look(700_000)
    assert rule_names(watched) == []


async def test_a_receiver_that_fails_is_tried_again(watched) -> None:
    watched.taker.error = OSError("away")
    await watched.look()
    receivers = AlarmFolder(watched.settings.folder).state().receivers
    assert (receivers["duty"].failures, receivers["duty"].sentence) == (1, "away")
    watched.taker.error = None
    await watched.look()
    assert watched.taker.sent == [("firing", "HeadraceStoreReadOnly")]


async def test_a_receiver_that_hangs_holds_up_no_other(watched) -> None:
    free = threading.Event()
    slow, quick = Taker("slow"), Taker("quick")
    slow.send = lambda _: free.wait(60)  # type: ignore[assignment]  # hangs until the test ends
    watched.watcher = watched.begun(slow, quick)
    try:
        for _ in range(2):
            watched.clock.advance(15_000)
            await watched.watcher.look()
        await watched.watcher._sending["quick"]
        assert quick.sent == [("firing", "HeadraceStoreReadOnly")]
    finally:
        free.set()
        await watched.watcher.settle()


async def test_a_silenced_alarm_is_not_told(watched) -> None:
    now_s = watched.clock.now().timestamp()
    folder = AlarmFolder(watched.settings.folder)
    made = folder.silence("HeadraceStoreReadOnly", for_s=60, why="x", by="ann", now_s=now_s)
    await watched.look()
    assert (watched.taker.sent, rule_names(watched)) == ([], ["HeadraceStoreReadOnly"])
    folder.unsilence(made.id, now_s=now_s)
    await watched.look()
    assert watched.taker.sent == [("firing", "HeadraceStoreReadOnly")]


async def test_one_round_sends_no_more_than_its_limit_and_the_rest_follows(settings) -> None:
    watched = Fixture(settings(messages_max=2))
    watched.figures = [
        Figure("headrace_broker_replica_in_sync", {"replica": str(n)}, 0.0) for n in range(3)
    ]
    await watched.look()
    await watched.look(300_000)
    assert len(watched.taker.sent) == 2
    await watched.look()
    assert len(watched.taker.sent) == 3


async def test_series_without_room_are_logged(settings) -> None:
    watched = Fixture(settings(series_max=1))
    with capture_logs() as logs:
        await watched.look()
    assert [one["series"] for one in logs if "leave something out" in one["event"]] == [1]


async def test_two_watchers_do_not_share_a_folder(watched) -> None:
    with (
        AlarmFolder(watched.settings.folder).watching(),
        pytest.raises(HeadraceError, match="another process watches"),
    ):
        await watched.watcher.run()


async def test_a_package_that_is_missing_ends_the_watcher(watched) -> None:
    watched.figures = ExtraMissing("pip install it")
    with pytest.raises(ExtraMissing):
        await watched.watcher.run()


async def test_a_test_reaches_all_receivers_and_says_which_failed() -> None:
    good, bad = Taker("good"), Taker("bad")
    bad.error = OSError("away")
    answers = await send_test(RULES["HeadraceDamage"], [good, bad], 5.0)
    assert answers == {"good": "", "bad": "away"}
    assert good.sent == [("test", "HeadraceDamage")]


BROKER = {"url": "http://127.0.0.1:1/metrics"}
APP = {"job": "headrace-run", "url": "http://127.0.0.1:2/metrics"}
PROJECTION = {"projection": "balances"}
SEVERAL = {
    "HeadraceNoLeader": [Figure("headrace_broker_leads", {"cluster": "c", "group": "g"}, 0.0)],
    "HeadraceParked": [Figure("headrace_app_parked", {"processor": "p"}, 3.0)],
    "HeadraceParkedForLong": [
        Figure("headrace_app_parked_oldest_seconds", {"processor": "p"}, 9e4)
    ],
    "HeadraceProjectionBehind": [Figure("headrace_app_projection_lag_seconds", PROJECTION, 99.0)],
    "HeadraceProjectionStuck": [
        Figure("headrace_app_projection_lag_messages", PROJECTION, 9.0),
        Figure("headrace_app_projection_position", PROJECTION, 4.0),
    ],
}


@pytest.mark.parametrize("rule", SEVERAL)
async def test_an_alarm_about_several_processes_does_not_end_when_its_process_crashes(
    settings, rule: str
) -> None:
    watched = Fixture(settings(target=[APP] if "_app_" in str(SEVERAL[rule]) else [BROKER]))
    watched.figures = SEVERAL[rule]
    for _ in range(25):
        await watched.look()
    assert watched.taker.sent == [("firing", rule)]
    watched.figures = OSError("refused")
    for _ in range(3):
        await watched.look()
    assert rule in rule_names(watched)
    assert ("resolved", rule) not in watched.taker.sent
    watched.figures = []
    await watched.look()
    assert ("resolved", rule) in watched.taker.sent


async def test_a_target_that_hangs_is_no_answer_and_others_are_read(settings) -> None:
    other = {"url": "http://127.0.0.1:3/metrics"}
    target = {"url": "http://127.0.0.1:1/metrics"}
    watched = Fixture(settings(target=[target, other], timeout_ms=3_000))
    free = threading.Event()

    def read(asked: AlarmTarget) -> list[Figure]:
        if asked.instance.endswith(":1"):
            free.wait(60)
        return [Figure("headrace_broker_read_only", {}, 1.0)]

    watched.watcher._read = read
    try:
        for _ in range(2):
            watched.clock.advance(15_000)
            await watched.watcher.look()
    finally:
        free.set()
    slow, quick = AlarmFolder(watched.settings.folder).state().targets
    assert (slow.up, quick.up) == (False, True)
    assert "no answer" in slow.sentence


async def test_silences_that_cannot_be_read_are_logged_and_the_last_ones_go_on(watched) -> None:
    now_s = watched.clock.now().timestamp()
    AlarmFolder(watched.settings.folder).silence(
        "HeadraceStoreReadOnly", for_s=60, why="x", by="ann", now_s=now_s
    )
    await watched.look()
    (watched.settings.folder / "silences.json").write_text("[")
    with capture_logs() as logs:
        await watched.look()
    assert watched.taker.sent == []
    assert "silences cannot be read" in [one["event"] for one in logs]
    await watched.look(60_000)
    assert watched.taker.sent == [("firing", "HeadraceStoreReadOnly")]


async def test_a_rule_that_fails_is_logged_and_its_alarms_stay(
    watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    await watched.look()

    def fail(*_: object) -> None:
        raise KeyError("le")

    monkeypatch.setattr(watched.watcher._rules["HeadraceStoreReadOnly"], "at", fail)
    with capture_logs() as logs:
        await watched.look()
    assert [one["rule"] for one in logs if one["log_level"] == "error"] == ["HeadraceStoreReadOnly"]
    assert rule_names(watched) == ["HeadraceStoreReadOnly"]


async def test_a_look_that_fails_is_logged_and_the_watcher_goes_on(watched) -> None:
    looks = []

    async def look() -> None:
        looks.append(len(looks))
        if len(looks) == 1:
            raise KeyError("le")
        raise asyncio.CancelledError

    watched.watcher._settings = watched.settings.model_copy(update={"every_ms": 0})
    watched.watcher.look = look
    with capture_logs() as logs, pytest.raises(asyncio.CancelledError):
        await watched.watcher.run()
    assert looks == [0, 1]
    assert [one["log_level"] for one in logs] == ["error"]


async def test_a_bug_with_a_receiver_is_a_failure_of_it(watched) -> None:
    watched.taker.error = KeyError("le")
    await watched.look()
    receivers = AlarmFolder(watched.settings.folder).state().receivers
    assert receivers["duty"].sentence == "it could not be sent; the log says why"


async def test_a_watcher_ends_while_a_target_and_a_receiver_hang(settings) -> None:
    watched, free, asked = Fixture(settings()), threading.Event(), threading.Event()
    watched.taker.send = lambda _: asked.set() or free.wait(60)
    watched.watcher._settings = settings(every_ms=1_000)
    running = asyncio.create_task(watched.watcher.run())
    try:
        while not asked.is_set():
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert not free.is_set()
        hanging = [one for one in threading.enumerate() if one.name == "alarms: send to duty"]
        assert hanging
        assert all(one.daemon for one in hanging)
    finally:
        free.set()


async def test_dead_letters_are_told_for_up_to_an_hour_after_a_start(watched) -> None:
    watched.figures = [Figure("headrace_broker_dead_letters_total", {"topic": "a"}, 3.0)]
    await watched.look()
    assert watched.taker.sent == [("firing", "HeadraceDeadLetters")]
    await watched.look(1_800_000)
    assert rule_names(watched) == ["HeadraceDeadLetters"]
    await watched.look(1_800_000)
    assert watched.taker.sent[1:] == [("resolved", "HeadraceDeadLetters")]
