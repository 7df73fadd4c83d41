"""A leader commits what its replicas have, answers them in time, and lets them into the set."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from headrace_mq.broker.replicas import replica
from headrace_mq.broker.replicas.bodies import FollowAnswer
from headrace_mq.broker.replicas.followers import Followers
from headrace_mq.broker.replicas.progress.progress import (
    ALONE_LAG_MS_MAX,
    CUT_OFF_MS_MIN,
    JOIN_MS_MAX,
    REPLICA_LAG_MS_MAX,
)
from headrace_mq.cluster.election import LEASE_MS, SPREAD_MS_MAX
from headrace_mq.cluster.record import (
    ACK_IN_SYNC,
    ACK_LEADER,
    ACK_TO_IN_SYNC,
    Identity,
    Proposal,
)
from headrace_mq.errors import InvalidArgument, MalformedRequest, NotLeader, ResponseCode
from headrace_mq.protocol.bodies import decode, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import FLAG_ONEWAY, Frame
from headrace_mq.store.log.commit_log import WHOLE_LOG


async def pair(places: list[Any], record: Any, *, together: bool) -> tuple[Followers, Any, Any]:
    """A leader with a replica that has caught up; `together`: it is in the set."""
    a, b = places
    followers = await a.lead(record)
    b.member.on_record(await record.read())
    for _ in range(3):
        await b.step(followers)
    if together:
        proposal = a.member.grow(b.me)
        assert proposal is not None
        a.member.on_record(await record.propose(proposal))
        followers.commit()
    return followers, a, b


async def test_messages_are_seen_once_the_replica_has_them(places: list[Any], record: Any) -> None:
    followers, a, b = await pair(places, record, together=True)
    a.append(1, 2)
    written = a.logs.store.durable()
    await a.until(lambda: a.logs.ends()["forever"] > 0)
    assert a.end() == 0
    assert not written.done()
    await b.step(followers)
    assert a.end() == 0
    await b.step(followers)
    assert a.end() == 2
    assert written.done()


async def test_a_question_waits_until_there_is_something_new(
    places: list[Any], record: Any
) -> None:
    followers, a, b = await pair(places, record, together=True)
    before = b.caller.answers
    b.ask(followers, wait_ms=500)
    assert b.caller.answers == before
    a.append(1)
    await b.until(lambda: b.caller.answers > before)
    answer = decode(FollowAnswer, b.caller.answer_body)
    assert any(part.data for part in answer.logs)


async def test_a_question_that_wants_no_answer_says_what_is_on_the_disk(
    places: list[Any], record: Any
) -> None:
    followers, a, b = await pair(places, record, together=True)
    a.append(1)
    await a.until(lambda: a.logs.ends()["forever"] > 0)
    b.ask(followers)
    await b.replica.take(b.member, decode(FollowAnswer, b.caller.answer_body))
    b.ask(followers, wait_ms=500)  # the next one leaves before the disk has the bytes, and waits
    asked = b.caller.answers
    assert a.end() == 0
    await b.replica.until_synced()
    assert a.end() == 0
    b.ask(followers, flags=FLAG_ONEWAY)
    assert a.end() == 1
    assert b.caller.answers == asked


async def test_a_replica_gets_bytes_while_the_leader_waits_for_its_disk(
    places: list[Any], record: Any
) -> None:
    followers, a, b = await pair(places, record, together=True)
    a.append(1)
    await a.until(lambda: a.logs.ends()["forever"] > 0)
    await b.step(followers)
    end = a.logs.ends()["forever"]
    b.ask(followers, wait_ms=500)
    answered_at: list[int] = []
    b.caller.on_answer = lambda: answered_at.append(a.logs.ends()["forever"])
    a.append(2)
    await a.until(lambda: a.logs.ends()["forever"] > end)
    # When the answer left, the leader's own disk had no more than before.
    assert answered_at == [end]
    part = decode(FollowAnswer, b.caller.answer_body).logs[0]
    assert part.position + len(part.data) == a.logs.ends()["forever"]


async def test_offsets_that_are_on_their_way_hold_no_message_back(
    places: list[Any], record: Any
) -> None:
    followers, a, b = await pair(places, record, together=True)
    a.append(1)
    await a.until(lambda: a.logs.ends()["forever"] > 0)
    await b.step(followers)
    followers.on_renamed(a.settings.directory / "metadata" / "offsets.json")
    b.ask(followers, flags=FLAG_ONEWAY)
    assert a.end() == 1


async def test_a_busy_replica_counts_as_caught_up_by_the_moment_that_it_reached(
    places: list[Any], record: Any
) -> None:
    _, a, b = await pair(places, record, together=True)
    clock = MovedClock()
    followers = Followers(a.member, a.logs, a.documents, clock, lambda: None)  # type: ignore[arg-type]  # only what is used of it
    # The leader writes before each question, so the replica never has all of now.
    for turn in range(2 * REPLICA_LAG_MS_MAX // 1_000 + 2):
        clock.ms += 1_000
        end = a.logs.ends()["forever"]
        a.append(turn)
        await a.until(lambda end=end: a.logs.ends()["forever"] > end)  # type: ignore[misc]  # only what is used of it
        await b.step(followers)
        assert followers.progress.lagging() == []


async def test_the_next_leader_is_asked_to_lead_once_it_has_everything(
    places: list[Any], record: Any
) -> None:
    followers, a, b = await pair(places, record, together=True)
    a.append(1)
    await a.until(lambda: a.logs.ends()["forever"] > 0)
    assert followers.hand_over("") == b.me.name
    followers.offer()
    answer = await b.step(followers)
    assert (answer.lead, followers.has_said_to_lead) == (False, False)
    answer = await b.step(followers)
    assert (answer.lead, answer.leaves, followers.has_said_to_lead) == (True, False, True)
    assert followers.begin_to_leave()
    # First this broker writes what it still has to write.
    assert not (await b.step(followers)).lead
    followers.offer()
    answer = await b.step(followers)
    assert (answer.lead, answer.leaves) == (True, True)


async def test_a_hand_over_that_is_asked_for_twice_goes_on(places: list[Any], record: Any) -> None:
    followers, _, b = await pair(places, record, together=True)
    followers.hand_over("")
    followers.offer()
    for name in ("", b.me.name):
        assert followers.hand_over(name) == b.me.name
    with pytest.raises(InvalidArgument, match="hands over to b already"):
        followers.hand_over("c")
    assert (await b.step(followers)).lead


async def test_a_question_that_waits_is_answered_when_its_replica_shall_lead(
    places: list[Any], record: Any
) -> None:
    followers, _, b = await pair(places, record, together=True)
    b.ask(followers, wait_ms=500)
    asked = b.caller.answers
    followers.hand_over(b.me.name)
    assert b.caller.answers == asked
    followers.offer()
    assert b.caller.answers == asked + 1
    assert decode(FollowAnswer, b.caller.answer_body).lead


async def test_clients_are_refused_while_the_leader_hands_over(
    places: list[Any], record: Any
) -> None:
    followers, _, b = await pair(places, record, together=True)
    followers.admit(RequestCode.PRODUCE)
    followers.hand_over("")
    for code in (RequestCode.HELLO, RequestCode.FOLLOW):
        followers.admit(code)
    with pytest.raises(NotLeader, match=b.me.name):
        followers.admit(RequestCode.PRODUCE)
    followers.succession = None
    followers.admit(RequestCode.PRODUCE)


async def test_a_leader_without_a_replica_in_sync_hands_nothing_over(
    places: list[Any], record: Any
) -> None:
    followers, _, b = await pair(places, record, together=False)
    assert not followers.begin_to_leave()
    with pytest.raises(InvalidArgument, match=r"in sync.*none"):
        followers.hand_over(b.me.name)
    assert followers.succession is None


async def test_a_question_is_answered_when_its_time_is_over(places: list[Any], record: Any) -> None:
    followers, _, b = await pair(places, record, together=True)
    before = b.caller.answers
    b.ask(followers, wait_ms=1)
    await b.until(lambda: b.caller.answers > before)
    answer = decode(FollowAnswer, b.caller.answer_body)
    assert not any(part.data for part in answer.logs)


async def test_an_answer_waits_until_the_replica_has_the_documents(
    places: list[Any], record: Any
) -> None:
    followers, a, b = await pair(places, record, together=True)
    answered: list[str] = []
    topics = a.settings.directory / "metadata" / "topics.json"
    followers.on_renamed(topics)
    followers.hold(lambda: answered.append("created"))
    assert answered == []
    a.append(1)
    await a.until(lambda: a.logs.ends()["forever"] > 0)
    await b.step(followers)
    assert answered == []
    assert a.end() == 0
    await b.step(followers)
    assert answered == ["created"]
    assert a.end() == 1


async def test_a_file_that_another_thread_replaced_counts_as_well(
    places: list[Any], record: Any
) -> None:
    followers, a, _ = await pair(places, record, together=False)
    offsets, before = a.settings.directory / "metadata" / "offsets.json", a.documents.end
    await asyncio.to_thread(followers.on_renamed, offsets)
    await a.until(lambda: a.documents.end == before + 1)


async def test_the_leaders_files_are_confirmed_once_all_replicas_have_them(
    places: list[Any], record: Any
) -> None:
    followers, a, b = await pair(places, record, together=True)
    followers.on_renamed(a.settings.directory / "metadata" / "archive.json")
    confirmed = asyncio.create_task(followers.confirmed())
    await b.step(followers)
    assert not confirmed.done()
    await b.step(followers)
    await asyncio.wait_for(confirmed, 120)


async def test_a_replica_of_an_earlier_epoch_learns_the_later_one(
    places: list[Any], record: Any
) -> None:
    a, b = places
    followers = await a.lead(record)
    answer = await b.step(followers)
    assert answer == FollowAnswer(followers.epoch)
    assert b.member.epoch == followers.epoch


async def test_a_later_epoch_ends_the_term(places: list[Any], record: Any) -> None:
    followers, a, b = await pair(places, record, together=True)
    proposal = b.member.on_record(await record.read()) and b.member.stand()
    assert proposal is not None
    b.member.on_record(await record.propose(proposal))
    changes = a.changes
    with pytest.raises(Exception, match="stopped to lead"):
        b.ask(followers)
    assert not followers.leads
    assert a.changes > changes
    followers.commit()
    assert followers.progress.lagging() == []


async def test_a_parked_question_hears_that_the_term_ended(places: list[Any], record: Any) -> None:
    followers, a, b = await pair(places, record, together=True)
    b.ask(followers, wait_ms=500)
    a.member.on_record((await record.read())._replace(version=9, epoch=9, leader="b"))
    followers.on_renamed(a.settings.directory / "metadata" / "topics.json")
    assert b.caller.code in {ResponseCode.OK, ResponseCode.NOT_LEADER}


class MovedClock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.ms = 0

    def monotonic_ms(self) -> int:
        return self.ms


async def test_a_question_for_other_logs_is_malformed(places: list[Any], record: Any) -> None:
    followers, _, b = await pair(places, record, together=True)
    request = b.replica.question(b.member)
    for logs in ([], request.logs[:2], [*request.logs, *request.logs]):
        body = memoryview(encode(replace(request, logs=logs)))
        with pytest.raises(MalformedRequest):
            followers.follow(b.caller, Frame(RequestCode.FOLLOW, 1, 0, 1, body))


async def test_a_silent_replica_lags_after_the_time_that_it_has(
    places: list[Any], record: Any
) -> None:
    _, a, b = await pair(places, record, together=True)
    clock = MovedClock()
    followers = Followers(a.member, a.logs, a.documents, clock, lambda: None)  # type: ignore[arg-type]  # only what is used of it
    clock.ms = ALONE_LAG_MS_MAX
    assert followers.progress.lagging() == []
    b.ask(followers)
    # No other replica is in the set: perhaps this broker is the one that is cut off.
    clock.ms += ALONE_LAG_MS_MAX
    assert followers.progress.lagging() == []
    clock.ms += 1
    assert followers.progress.lagging() == [b.me]
    # With another one that is there, it is not.
    other = Identity("c", "disk-c")
    followers.leadership.confirmed |= {other}
    followers.progress._caught_up_ms |= {other: clock.ms, b.me: clock.ms - REPLICA_LAG_MS_MAX}
    assert followers.progress.lagging() == []
    clock.ms += 1
    assert followers.progress.lagging() == [b.me]
    # Two that were heard last at different moments are both silent.
    followers.progress._caught_up_ms |= {other: clock.ms - 2_800, b.me: clock.ms - 3_100}
    assert followers.progress.lagging() == []
    clock.ms += ALONE_LAG_MS_MAX - 3_100 + 1
    assert followers.progress.lagging() == [b.me]


async def test_a_leader_is_cut_off_when_neither_the_record_nor_a_replica_was_heard(
    places: list[Any], record: Any
) -> None:
    _, a, b = await pair(places, record, together=True)
    clock = MovedClock()
    followers = Followers(a.member, a.logs, a.documents, clock, lambda: None)  # type: ignore[arg-type]  # only what is used of it
    clock.ms = 2 * ALONE_LAG_MS_MAX
    # Either is enough, and what came meanwhile is read first.
    assert not followers.progress.is_cut_off(clock.ms - ALONE_LAG_MS_MAX)
    assert not followers.progress.is_cut_off(0)
    clock.ms += CUT_OFF_MS_MIN - 1
    assert not followers.progress.is_cut_off(0)
    b.ask(followers)
    clock.ms += ALONE_LAG_MS_MAX
    assert not followers.progress.is_cut_off(0)
    clock.ms += 1
    assert not followers.progress.is_cut_off(0)
    clock.ms += CUT_OFF_MS_MIN
    assert followers.progress.is_cut_off(0)
    # One of two replicas is not enough: with the record, the other one may lead.
    b.ask(followers)
    assert not followers.progress.is_cut_off(0)
    followers.leadership.confirmed |= {Identity("c", "disk-c")}
    assert not followers.progress.is_cut_off(0)
    clock.ms += CUT_OFF_MS_MIN
    b.ask(followers)
    assert followers.progress.is_cut_off(0)
    # One that leads alone misses none.
    followers.leadership.confirmed = frozenset({a.me})
    assert not followers.progress.is_cut_off(0)


async def test_commits_wait_for_a_replica_that_is_about_to_enter(
    places: list[Any], record: Any
) -> None:
    _, a, b = await pair(places, record, together=False)
    clock = MovedClock()
    followers = Followers(a.member, a.logs, a.documents, clock, lambda: None)  # type: ignore[arg-type]  # only what is used of it
    assert followers.progress.next_to_join() is None
    b.ask(followers)
    assert followers.progress.next_to_join() == b.me
    clock.ms = JOIN_MS_MAX
    assert followers.progress.next_to_join() == b.me
    # It did not enter in its time, so commits go on without it for a lease.
    clock.ms += 1
    b.ask(followers)
    assert followers.progress.next_to_join() is None
    clock.ms += JOIN_MS_MAX + REPLICA_LAG_MS_MAX
    b.ask(followers)
    assert followers.progress.next_to_join() == b.me


async def test_a_replica_that_is_gone_does_not_enter_however_much_it_has(
    places: list[Any], record: Any
) -> None:
    _, a, b = await pair(places, record, together=False)
    clock = MovedClock()
    followers = Followers(a.member, a.logs, a.documents, clock, lambda: None)  # type: ignore[arg-type]  # only what is used of it
    b.ask(followers)
    assert followers.progress.entrants() == [b.me]
    clock.ms = JOIN_MS_MAX + 1
    assert followers.leadership.entrants() == [b.me]
    assert followers.progress.entrants() == []
    assert followers.progress.next_to_join() is None


async def test_a_replica_of_another_group_is_refused(places: list[Any], record: Any) -> None:
    followers, a, b = await pair(places, record, together=True)
    question = b.replica.question(b.member)
    assert question.group_id == a.member.group_id != ""
    caller = b.caller

    def asks(group_id: str) -> None:
        body = encode(replace(question, group_id=group_id, wait_ms=0))
        followers.follow(caller, Frame(RequestCode.FOLLOW, 1, 0, 1, memoryview(body)))

    with pytest.raises(InvalidArgument, match=r"with the id other; give both brokers the same"):
        asks("other")
    answers = caller.answers
    # An earlier version says none.
    asks("")
    assert (caller.answers, caller.code) == (answers + 1, ResponseCode.OK)


def test_limits_are_ordered() -> None:
    assert JOIN_MS_MAX < REPLICA_LAG_MS_MAX
    # The others have stood by then, and asked the record.
    assert LEASE_MS + SPREAD_MS_MAX + 1_000 < ALONE_LAG_MS_MAX
    assert Identity("a", "1") < Identity("b", "0")


async def test_a_leader_alone_keeps_back_what_its_replica_lacks(
    places: list[Any], record: Any
) -> None:
    followers, a, b = await pair(places, record, together=True)
    found = await record.read()
    a.member.on_record(await record.propose(Proposal(found.version, *found[1:5], ack=ACK_LEADER)))
    followers.commit()
    before = a.logs.ends()["forever"]
    a.append(1)
    await a.until(lambda: a.end() == 1)
    held = a.logs.store._log("forever")
    assert (held.end > before, held.kept_from) == (True, before)
    answer = await b.step(followers)
    assert (answer.logs[0].committed, answer.logs[0].shared) == (held.end, before)
    # It shows what it has: that is acknowledged.
    assert b.end() == 1
    await b.step(followers)
    assert held.kept_from == held.end
    # All in sync again.
    for ack in (ACK_TO_IN_SYNC, ACK_IN_SYNC):
        found = await record.read()
        a.member.on_record(await record.propose(Proposal(found.version, *found[1:5], ack=ack)))
        followers.commit()
    assert held.kept_from == WHOLE_LOG


async def test_a_replica_of_an_earlier_version_is_not_counted_by_a_leader_alone(
    places: list[Any], record: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "FEATURE_LEVEL", 0)
    followers, a, b = await pair(places, record, together=True)
    found = await record.read()
    a.append(1)
    await a.until(lambda: a.logs.ends()["forever"] > 0)
    for ack, counted in ((ACK_LEADER, False), (ACK_TO_IN_SYNC, False), (ACK_IN_SYNC, True)):
        a.member.on_record(found._replace(version=found.version + 1, ack=ack))
        found = found._replace(version=found.version + 1)
        for _ in range(2):
            await b.step(followers)
        durable = followers.leadership.durable[b.me]["forever"]
        assert (durable == a.logs.ends()["forever"]) is counted


async def test_the_next_leader_hears_by_which_version_it_has_everything(
    places: list[Any], record: Any
) -> None:
    followers, _, b = await pair(places, record, together=True)
    assert (await b.step(followers)).version == -1
    followers.hand_over("")
    followers.offer()
    answer = await b.step(followers)
    assert (answer.lead, answer.version) == (True, (await record.read()).version)
