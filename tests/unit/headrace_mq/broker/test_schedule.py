import msgspec
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace_mq.broker.schedule import KeptSchedule, Schedule
from headrace_mq.broker.schedule_journal import (
    Cancelled,
    Delivered,
    Delivery,
    Event,
    Moved,
    Part,
)
from headrace_mq.broker.schedule_wheel import Entry

NOW = 1_700_000_000_000


def delivery(*entries: Entry) -> Delivery:
    return Delivery(1, [Part("t", 0, 0, list(entries))])


def test_what_is_taken_is_neither_taken_again_nor_forgotten() -> None:
    schedule = Schedule()
    schedule.apply(Entry(NOW, 0, 0))
    assert schedule.take(NOW, 5) == [Entry(NOW, 0, 0)]
    assert schedule.take(NOW, 5) == []
    assert (len(schedule), schedule.next_due_ms(), schedule.lowest_place()) == (1, NOW, 0)
    schedule.give_back([Entry(NOW, 0, 0)])
    assert schedule.take(NOW, 5) == [Entry(NOW, 0, 0)]


def test_a_delivery_is_unfinished_until_the_next_one_or_its_end() -> None:
    schedule = Schedule()
    first, second = Entry(NOW, 0, 0), Entry(NOW, 1, 1)
    for event in (first, second, delivery(first)):
        schedule.apply(event)
    assert (schedule.unfinished, len(schedule)) == (delivery(first), 1)
    assert schedule.lowest_place() == 0
    schedule.apply(delivery(second))
    assert schedule.unfinished == delivery(second)
    schedule.apply(Delivered())
    assert (schedule.unfinished, len(schedule), schedule.lowest_place()) == (None, 0, None)


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
    assert schedule.take(NOW, 1) == [Entry(NOW, 0, 7)]


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

    @rule(in_ms=st.integers(-5, 100))
    def enter(self, in_ms: int) -> None:
        number = len(self.journal) + len(self.staged)
        self.staged.append(Entry(self.now + in_ms, number, number))

    @rule(by_ms=st.integers(-50, 100))
    def pass_time(self, by_ms: int) -> None:
        self.now += by_ms

    @precondition(lambda self: not self.taken)
    @rule(limit=st.integers(1, 3))
    def take(self, limit: int) -> None:
        self.taken = self.schedule.take(self.now, limit)
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
        for entry in self.schedule.placed_below(len(self.journal), limit):
            place = len(self.journal) + len(self.staged)
            self.staged.append(Moved(entry._replace(place=place)))

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
        self.schedule = Schedule() if forget else Schedule.restored(kept)
        for event in self.journal[self.schedule.read_to :]:
            self.schedule.apply(event)
            self.schedule.read_to += 1
        delivered = [event for event in self.journal if isinstance(event, Delivery)]
        assert self.schedule.unfinished == (delivered[-1] if delivered else None)

    @invariant()
    def knows_what_is_pending(self) -> None:
        held = {*(entry.number for entry in self.taken)}
        held |= {event.number for event in self.staged if isinstance(event, Cancelled)}
        free = sorted(entry for n, entry in self.pending.items() if n not in held)
        assert len(self.schedule) == len(self.pending)
        assert sorted(self.schedule.placed_below(1 << 60, 1 << 30)) == free

    def _model(self, event: Event) -> None:
        if isinstance(event, Entry):
            self.pending[event.number] = event
        elif isinstance(event, Moved):
            self.pending[event.entry.number] = event.entry
        elif isinstance(event, Cancelled):
            del self.pending[event.number]
        elif isinstance(event, Delivery):
            for entry in event.entries():
                del self.pending[entry.number]


TestAgainstItsJournal = AgainstItsJournal.TestCase
TestAgainstItsJournal.settings = hypothesis_settings(max_examples=60, stateful_step_count=30)
