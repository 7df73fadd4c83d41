import msgspec
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import astuple

from headrace_mq.broker.schedule.entries import KeptSchedule, Schedule
from headrace_mq.broker.schedule.journal import (
    Cancelled,
    ClockSet,
    Delayed,
    Delivered,
    Delivery,
    Event,
    Moved,
    ScheduledBatch,
)
from headrace_mq.broker.schedule.wheel import Entry

NOW = 1_700_000_000_000


def delivery(*entries: Entry) -> Delivery:
    return Delivery(1, [ScheduledBatch("t", 0, 0, list(entries))])


def restored(kept: KeptSchedule) -> Schedule:
    schedule = Schedule()
    schedule.restore(kept)
    return schedule


def test_a_taken_message_is_neither_taken_again_nor_forgotten() -> None:
    schedule = Schedule()
    schedule.apply(Entry(NOW, 0, 0))
    assert schedule.take(NOW, NOW, 5) == [Entry(NOW, 0, 0)]
    assert schedule.take(NOW, NOW, 5) == []
    assert (len(schedule), schedule.next_due_ms(0), schedule.lowest_offset()) == (1, NOW, 0)
    schedule.give_back([Entry(NOW, 0, 0)])
    assert schedule.take(NOW, NOW, 5) == [Entry(NOW, 0, 0)]


def test_a_delivery_is_unfinished_until_the_next_one_or_its_end() -> None:
    schedule = Schedule()
    first, second = Entry(NOW, 0, 0), Entry(NOW, 1, 1)
    for event in (first, second, delivery(first)):
        schedule.apply(event)
    assert (schedule.unfinished, len(schedule)) == (delivery(first), 1)
    assert schedule.lowest_offset() == 0
    schedule.apply(delivery(second))
    assert schedule.unfinished == delivery(second)
    schedule.apply(Delivered())
    assert (schedule.unfinished, len(schedule), schedule.lowest_offset()) == (None, 0, None)


def test_a_cancelled_message_stays_cancelled_when_its_copy_becomes_visible_late() -> None:
    schedule = Schedule()
    schedule.apply(Entry(NOW, 0, 0))
    # The copy is appended, then the message is cancelled, then both become visible.
    assert schedule.cancel(0, NOW) == Entry(NOW, 0, 0)
    schedule.apply(Moved(Entry(NOW, 0, 7)))
    schedule.apply(Cancelled(0, NOW))
    assert len(schedule) == 0


def test_a_withdrawn_cancellation_leaves_the_message_where_its_newest_copy_is() -> None:
    schedule = Schedule()
    schedule.apply(Entry(NOW, 0, 0))
    cancelled = schedule.cancel(0, None)
    assert cancelled is not None
    schedule.apply(Moved(Entry(NOW, 0, 7)))
    schedule.give_back([cancelled])
    assert schedule.take(NOW, NOW, 1) == [Entry(NOW, 0, 7)]


def test_a_delay_waits_by_the_steady_clock_and_a_date_by_the_wall_clock() -> None:
    schedule = Schedule()
    schedule.apply(Entry(NOW + 100, 0, 0))
    schedule.apply(Delayed(Entry(NOW + 100, 1, 1)))
    # The clock is set forth by an hour; what comes now is counted from what it says now.
    hour = 3_600_000
    schedule.apply(ClockSet(hour))
    schedule.apply(Delayed(Entry(NOW + hour + 50, 2, 2)))
    assert schedule.next_due_ms(hour) == NOW + 100
    assert (schedule.wake_ms(hour) or 0) <= NOW + 100
    assert schedule.take(NOW + hour, NOW, 5) == [Entry(NOW + 100, 0, 0)]
    schedule.apply(delivery(Entry(NOW + 100, 0, 0)))
    assert schedule.next_due_ms(hour) == NOW + hour + 50
    due = schedule.take(NOW + hour + 100, NOW + 100, 5)
    assert due == [Entry(NOW + 50, 2, 2), Entry(NOW + 100, 1, 1)]


def test_messages_due_by_both_clocks_come_in_the_order_of_the_wall_clock() -> None:
    schedule = Schedule()
    for number in range(4):
        entry = Entry(NOW + number, number, number)
        schedule.apply(Delayed(entry) if number % 2 else entry)
    taken = [schedule.take(NOW + 9, NOW + 9, 3), schedule.take(NOW + 9, NOW + 9, 3)]
    assert [[entry.number for entry in some] for some in taken] == [[0, 1, 2], [3]]


def test_a_delay_is_cancelled_also_when_the_clock_was_set_since() -> None:
    for was_kept in (False, True):
        schedule = Schedule()
        schedule.apply(Delayed(Entry(NOW + 10_000_000, 0, 0)))
        schedule.apply(ClockSet(86_400_000))
        if was_kept:
            schedule = restored(schedule.kept())
        assert schedule.cancel(0, NOW + 10_000_000) == Entry(NOW + 10_000_000, 0, 0)
        assert schedule.cancel(0, NOW + 10_000_000) is None


def test_messages_kept_by_the_version_before_have_dates() -> None:
    before = b'{"read_to":3,"buckets":[],"held":[[%d,0,0]],"unfinished":null}' % NOW
    schedule = restored(msgspec.json.decode(before, type=KeptSchedule))
    assert schedule.take(NOW, NOW - 10, 5) == [Entry(NOW, 0, 0)]


class AgainstItsJournal(RuleBasedStateMachine):
    """A crash at any time: the journal, or what was kept of it and the rest, tells the same."""

    def __init__(self) -> None:
        super().__init__()
        self.journal: list[Event] = []
        # Appended and not durable: the schedule has not seen it, a crash may take it.
        self.staged: list[Event] = []
        self.schedule = Schedule()
        self.kept = self.schedule.kept()
        self.pending: dict[int, Entry] = {}
        self.taken: list[Entry] = []
        self.now = NOW
        # By how much the clock was set, as the tail of the journal says, and as readers know it.
        self.ahead = self.applied_ahead = 0
        self.delays: set[int] = set()

    @rule(in_ms=st.integers(-5, 100), is_delay=st.booleans())
    def enter(self, in_ms: int, *, is_delay: bool) -> None:
        number = len(self.journal) + len(self.staged)
        entry = Entry(self.now + in_ms, number, number)
        self.staged.append(Delayed(entry) if is_delay else entry)

    @rule(by_ms=st.integers(-50, 100))
    def pass_time(self, by_ms: int) -> None:
        self.now += by_ms

    @rule(by_ms=st.integers(-500, 500))
    def set_clock(self, by_ms: int) -> None:
        self.now += by_ms
        self.ahead += by_ms
        self.staged.append(ClockSet(self.ahead))

    @precondition(lambda self: not self.taken)
    @rule(limit=st.integers(1, 3))
    def take(self, limit: int) -> None:
        self.taken = self.schedule.take(self.now, self.now - self.ahead, limit)
        if self.taken:
            self.staged.append(delivery(*self.taken))

    @precondition(lambda self: self.pending)
    @rule(pick=st.integers(0, 100))
    def cancel(self, pick: int) -> None:
        number = sorted(self.pending)[pick % len(self.pending)]
        entry = self.schedule.cancel(number, None)
        if entry is not None:
            self.staged.append(Cancelled(entry.number, entry.due_ms))

    @rule(limit=st.integers(1, 3))
    def move(self, limit: int) -> None:
        for entry, is_delay in map(astuple, self.schedule.placed_below(len(self.journal), limit)):
            place = len(self.journal) + len(self.staged)
            due_ms = entry.due_ms + (self.ahead if is_delay else 0)
            self.staged.append(Moved(Entry(due_ms, entry.number, place), is_delay))

    @rule()
    def sync(self) -> None:
        for event in self.staged:
            self.schedule.apply(event)
            self.schedule.read_to += 1
            self._model(event)
        self.journal += self.staged
        self.staged = []
        self.taken = []

    @rule()
    def withdraw(self) -> None:
        """The disk was full: what was staged is gone, and what was held waits again."""
        held = [Entry(e.due_ms, e.number, 0) for e in self.staged if isinstance(e, Cancelled)]
        self.schedule.give_back([*self.taken, *held])
        self.staged, self.taken = [], []
        self.note_clock()

    def note_clock(self) -> None:
        """As before anything that is counted from the clock."""
        if self.applied_ahead != self.ahead:
            self.staged.append(ClockSet(self.ahead))

    @rule()
    def keep(self) -> None:
        self.kept = self.schedule.kept()

    @rule(survive=st.integers(0, 10), forget=st.booleans())
    def crash(self, survive: int, *, forget: bool) -> None:
        for event in self.staged[:survive]:
            self.journal.append(event)
            self._model(event)
        self.staged, self.taken = [], []
        encoded = msgspec.json.encode(self.kept)
        kept = msgspec.json.decode(encoded, type=KeptSchedule)
        self.schedule = Schedule() if forget else restored(kept)
        for event in self.journal[self.schedule.read_to :]:
            self.schedule.apply(event)
            self.schedule.read_to += 1
        delivered = [event for event in self.journal if isinstance(event, Delivery)]
        assert self.schedule.unfinished == (delivered[-1] if delivered else None)
        self.note_clock()

    @invariant()
    def knows_what_is_pending(self) -> None:
        held = {*(entry.number for entry in self.taken)}
        held |= {event.number for event in self.staged if isinstance(event, Cancelled)}
        free = sorted(entry for n, entry in self.pending.items() if n not in held)
        assert len(self.schedule) == len(self.pending)
        found = [astuple(moved) for moved in self.schedule.placed_below(1 << 60, 1 << 30)]
        assert sorted(entry for entry, _ in found) == free
        assert {entry.number for entry, is_delay in found if is_delay} == {
            entry.number for entry in free if entry.number in self.delays
        }

    def _model(self, event: Event) -> None:
        if isinstance(event, Entry):
            self.pending[event.number] = event
        elif isinstance(event, Delayed):
            self.delays.add(event.entry.number)
            self.pending[event.entry.number] = self._steady(event.entry)
        elif isinstance(event, Moved):
            entry = self._steady(event.entry) if event.is_delay else event.entry
            self.pending[entry.number] = entry
        elif isinstance(event, ClockSet):
            self.applied_ahead = event.ahead_ms
        elif isinstance(event, Cancelled):
            del self.pending[event.number]
        elif isinstance(event, Delivery):
            for entry in event.entries():
                del self.pending[entry.number]

    def _steady(self, entry: Entry) -> Entry:
        return entry._replace(due_ms=entry.due_ms - self.applied_ahead)


TestAgainstItsJournal = AgainstItsJournal.TestCase
TestAgainstItsJournal.settings = hypothesis_settings(max_examples=60, stateful_step_count=30)
