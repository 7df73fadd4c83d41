"""The checker of histories: one sound history, and every way to spoil it."""

from collections.abc import Sequence

import pytest

from headrace_mq.message import QueueRef
from headrace_mq.testing.history import (
    Acknowledged,
    Committed,
    Crashed,
    Event,
    Failed,
    Finished,
    Granted,
    Received,
    Reset,
    Sent,
    TakenBack,
    Told,
    check,
)

Q, OTHER = QueueRef("t", 0), QueueRef("t", 1)
LOG = {(Q, 0): b"a0", (Q, 1): b"b0", (Q, 2): b"a1", (Q, 3): b"a2"}
KEYS = {b"a0": "a", b"b0": "b", b"a1": "a", b"a2": "a"}


def sent(*bodies: bytes) -> list[Event]:
    return [Sent(0, body, KEYS.get(body, "a"), "p") for body in bodies]


def acknowledged(log: dict[tuple[QueueRef, int], bytes] = LOG) -> list[Event]:
    return [Acknowledged(1, body, queue, offset) for (queue, offset), body in log.items()]


def delivered(*offsets: int, member: str = "m", in_turn: bool | None = False) -> list[Event]:
    return [Received(2, "g", member, Q, n, LOG[Q, n], in_turn) for n in offsets]


def done(*offsets: int, member: str = "m") -> list[Event]:
    return [Finished(3, "g", member, Q, n) for n in offsets]


def committed(offset: int, at_ms: int = 4, *, accepted: bool = True) -> list[Event]:
    return [Committed(at_ms, "g", "m", Q, offset, accepted)]


PUBLISHED = [*sent(*LOG.values()), *acknowledged()]
WORK = [*delivered(0, 1, 2, 3), *done(0, 1, 2, 3)]
SOUND: list[Event] = [*PUBLISHED, *WORK, *committed(4)]


def broken(
    events: Sequence[Event],
    log: dict[tuple[QueueRef, int], bytes] = LOG,
    *,
    forgets_ms: int = 0,
) -> set[str]:
    return {promise for promise, _ in check(events, log=log, groups=["g"], forgets_ms=forgets_ms)}


@pytest.mark.parametrize(
    "events",
    [
        SOUND,
        [*PUBLISHED, *delivered(0, 1), *done(0), *committed(1),
         *delivered(1, 2, 3, member="n"), *done(1, 2, 3)],
        [*PUBLISHED, *delivered(0, 1, 2), *delivered(0, 1, 2, 3, member="n"), *done(0, 1, 2, 3)],
        [*PUBLISHED, *WORK, *committed(4), Reset(5, "g", Q, 1), Told(9, "g", Q, 1),
         *delivered(1, 2, 3), *done(1, 2, 3)],
        [*PUBLISHED, Reset(1, "g", Q, 2), *delivered(2, 3), *done(2, 3), *committed(4)],
        [*PUBLISHED, *delivered(0, 1, in_turn=True), *done(0), *delivered(2, in_turn=True),
         *done(2), *delivered(3, in_turn=True), *done(1, 3)],
    ],
    ids=[
        "everything once", "a member goes on where another one committed",
        "nothing was committed, so all comes again",
        "a reset goes back", "a reset leaves out", "keys are handled side by side",
    ],
)  # fmt: skip
def test_a_history_that_keeps_all_promises_passes(events: list[Event]) -> None:
    assert broken(events) == set()


def test_a_message_whose_sender_never_heard_may_be_there_or_not() -> None:
    assert broken([*sent(b"a9"), *SOUND]) == set()
    log = {**LOG, (Q, 4): b"a9"}
    more = [Received(2, "g", "m", Q, 4, b"a9", False), *done(4)]
    assert broken([*sent(b"a9"), *SOUND, *more], log) == set()


def test_an_acknowledged_message_that_is_nowhere_is_lost() -> None:
    short = {place: body for place, body in LOG.items() if place != (Q, 3)}
    assert "lost" in broken(SOUND, short)
    forgotten = [*sent(b"a9"), Acknowledged(1, b"a9", Q, -1)]
    assert broken([*SOUND, *forgotten]) == {"lost"}


def test_a_body_that_changed_is_found_in_the_log_and_at_delivery() -> None:
    assert "changed" in broken(SOUND, {**LOG, (Q, 1): b"b!"})
    wrong = Received(2, "g", "m", Q, 0, b"a!", False)
    assert broken([*PUBLISHED, wrong, *WORK]) == {"changed"}


def test_a_message_that_was_never_sent_is_a_phantom() -> None:
    log = {**LOG, (Q, 4): b"a9"}
    more = [Received(2, "g", "m", Q, 4, b"a9", False), *done(4)]
    assert broken([*SOUND, *more], log) == {"phantom"}


def test_a_message_that_is_stored_twice_is_found() -> None:
    log = {**LOG, (Q, 4): b"a2"}
    more = [Received(2, "g", "m", Q, 4, b"a2", False), *done(4)]
    assert broken([*SOUND, *more], log) == {"stored twice"}


def test_messages_of_one_key_that_changed_places_are_found() -> None:
    swapped = [*sent(b"a1", b"a0", b"b0", b"a2"), *acknowledged(), *WORK]
    assert broken(swapped) == {"order"}


def test_one_key_in_two_queues_is_found() -> None:
    log = {**LOG, (OTHER, 0): b"a9"}
    more = [Received(2, "g", "m", OTHER, 0, b"a9", False), Finished(3, "g", "m", OTHER, 0)]
    events = [*PUBLISHED, *sent(b"a9"), *acknowledged({(OTHER, 0): b"a9"}), *WORK, *more]
    assert broken(events, log) == {"key in two queues"}


def test_a_record_that_was_left_out_is_found() -> None:
    events = [*PUBLISHED, *delivered(0), *delivered(2, 3), *delivered(1), *done(0, 1, 2, 3)]
    assert "left out" in broken(events)


def test_a_repetition_that_begins_where_no_member_ever_committed_is_found() -> None:
    events = [*PUBLISHED, *WORK, *committed(4), *delivered(2, member="n")]
    assert broken(events) == {"began anywhere"}


def test_a_key_whose_turn_had_not_come_is_found() -> None:
    events = [*PUBLISHED, *delivered(0, 2, in_turn=True), *done(0, 1, 2, 3)]
    assert broken(events) == {"out of turn"}


def test_a_commit_beyond_what_is_done_is_found() -> None:
    events = [*PUBLISHED, *delivered(0, 1, 2, 3), *done(0), *committed(2), *done(1, 2, 3)]
    assert broken(events) == {"skipped"}
    refused = [*PUBLISHED, *delivered(0, 1, 2, 3), *committed(2, accepted=False)]
    assert broken([*refused, *done(0, 1, 2, 3)]) == set()


def test_a_commit_under_a_lock_that_another_member_got_meanwhile_is_found() -> None:
    lock, taken = Granted(1, "g", "m", Q, 7), Granted(2, "g", "n", Q, 8)
    commit = Committed(4, "g", "m", Q, 4, True, 7)
    assert broken([*PUBLISHED, lock, *WORK, commit, taken]) == set()
    assert broken([*PUBLISHED, lock, taken, *WORK, commit]) == {"stale commit"}
    refused = commit._replace(accepted=False)
    assert broken([*PUBLISHED, lock, taken, *WORK, refused]) == set()


def test_a_lock_of_two_members_is_found() -> None:
    lock, other = Granted(1, "g", "m", Q, 7), Granted(2, "g", "n", Q, 7)
    commit = Committed(4, "g", "m", Q, 4, True, 7)
    assert broken([*PUBLISHED, lock, lock, *WORK, commit]) == set()
    assert broken([*PUBLISHED, lock, other, *WORK]) == {"two owners"}
    assert broken([*PUBLISHED, lock, *WORK, commit._replace(member="n")]) == {"two owners"}


def test_a_record_that_failed_may_be_passed_but_has_to_be_done_in_the_end() -> None:
    failed = Failed(3, "g", "m", Q, 2)
    passed = [*PUBLISHED, *delivered(0, 1, 2, 3), *done(0, 1, 3), failed, *committed(4)]
    assert broken(passed) == {"never done"}
    assert broken([*passed, *done(2)]) == set()


def test_a_message_that_was_taken_back_must_not_come() -> None:
    sent_later = [*sent(*LOG.values()), *acknowledged({(Q, -1): b"a2"})]
    taken_back = TakenBack(2, b"a2", sure=True)
    rest = {place: body for place, body in LOG.items() if body != b"a2"}
    without = [*sent_later, *delivered(0, 1, 2), *done(0, 1, 2)]
    assert broken(without, rest) == {"lost"}
    assert broken([*without, taken_back], rest) == set()
    assert broken([*sent_later, *WORK, taken_back]) == {"cancelled"}
    nobody_knows = taken_back._replace(sure=False)
    assert broken([*without, nobody_knows], rest) == set()
    assert broken([*sent_later, *WORK, nobody_knows]) == set()


def test_a_history_without_promised_order_passes_in_any_order() -> None:
    anyhow = [*delivered(3, 1, in_turn=None), *delivered(0, 2, in_turn=None)]
    assert broken([*PUBLISHED, *anyhow, *done(0, 1, 2, 3)]) == set()
    wrong = [Received(2, "g", "m", Q, 0, b"a1", None)]
    assert broken([*PUBLISHED, *wrong, *done(0, 1, 2, 3)]) == {"changed"}


def test_an_offset_that_goes_back_without_a_reason_is_found() -> None:
    told = Told(9, "g", Q, 2)
    assert "went back" in broken([*SOUND, *committed(2, accepted=False), told])


def test_a_crash_forgets_no_more_than_the_last_moments() -> None:
    crash = [Crashed(1_000), Told(1_001, "g", Q, -1)]
    assert broken([*SOUND, *committed(4, at_ms=950), *crash], forgets_ms=100) == {"went back"}
    late = [*PUBLISHED, *WORK, *committed(4, at_ms=950), *crash, *WORK]
    assert broken(late, forgets_ms=100) == set()


def test_an_offset_that_was_never_committed_is_found() -> None:
    assert broken([*SOUND, Told(9, "g", Q, 7)]) == {"offset from nowhere"}


def test_a_message_that_a_group_never_finished_is_found() -> None:
    assert broken([*PUBLISHED, *delivered(0, 1, 2, 3), *done(0, 1, 2)]) == {"never done"}
    assert broken(PUBLISHED) == {"never done"}
