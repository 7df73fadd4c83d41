"""
What every keeper of a group's record must do; subclass it in your tests, and give it your keeper.

Used by `tests/conformance/test_record.py` for each keeper of `headrace_mq.cluster.records`. Tests speak to keepers as several
brokers do, at once.
"""

import asyncio
from collections.abc import Callable

import pytest

from headrace_mq.cluster.record import (
    ACK_IN_SYNC,
    ACK_LEADER,
    ACK_TO_IN_SYNC,
    FEATURE_LEVEL,
    GroupRecord,
    Identity,
    LogPlace,
    Proposal,
    RecordKeeper,
    RecordUnavailable,
    Refused,
)

__all__ = ["RecordConformance"]

A, B, C = (Identity(name, f"disk of {name}") for name in "abc")


class RecordConformance:
    """The suite. Provide a fixture `keeper`: a function that returns a new keeper of one and the same group."""

    async def test_a_group_that_was_never_made_cannot_be_read(
        self, keeper: Callable[[], RecordKeeper]
    ) -> None:
        """A read of no group fails."""
        with pytest.raises(RecordUnavailable):
            await keeper().read()

    async def test_the_first_of_several_makes_the_record(
        self, keeper: Callable[[], RecordKeeper]
    ) -> None:
        """Brokers that start at once get the same record."""
        made = await asyncio.gather(*(keeper().create(m, [A, B, C]) for m in (A, B, C)))
        assert made[0] == made[1] == made[2]
        assert made[0][:2] == (1, 1)
        assert made[0].leader in {"a", "b", "c"}
        assert made[0].in_sync == {A, B, C}

    async def test_a_record_begins_in_the_epoch_that_its_maker_says(
        self, keeper: Callable[[], RecordKeeper]
    ) -> None:
        """A broker that ran alone has epochs already."""
        made = await keeper().create(A, [A], 7)
        assert made == GroupRecord(1, 7, "a", frozenset({A}), group_id=made.group_id)
        assert (await keeper().create(B, [B], 9)).epoch == 7

    async def test_a_change_of_the_version_that_was_seen_is_made(
        self, keeper: Callable[[], RecordKeeper]
    ) -> None:
        """A proposal changes the record, and returns it."""
        record = await keeper().create(A, [A, B])
        changed = await keeper().propose(Proposal(record.version, 2, "b", frozenset({B})))
        assert changed == GroupRecord(2, 2, "b", frozenset({B}), group_id=record.group_id)
        assert await keeper().read() == changed

    async def test_a_change_of_an_earlier_version_is_refused_with_what_is_there(
        self, keeper: Callable[[], RecordKeeper]
    ) -> None:
        """A proposal that comes too late changes nothing."""
        one, other = keeper(), keeper()
        record = await one.create(A, [A, B, C])
        changed = await one.propose(Proposal(record.version, 1, "a", frozenset({A, B})))
        with pytest.raises(Refused) as refused:
            await other.propose(Proposal(record.version, 2, "c", frozenset({C})))
        assert refused.value.record == changed
        assert await other.read() == changed

    async def test_of_two_candidates_one_wins(self, keeper: Callable[[], RecordKeeper]) -> None:
        """An epoch has one leader."""
        record = await keeper().create(A, [A, B, C])

        async def stand(member: Identity) -> GroupRecord | None:
            try:
                return await keeper().propose(
                    Proposal(record.version, 2, member.name, frozenset({B, C}))
                )
            except Refused:
                return None

        results = await asyncio.gather(stand(B), stand(C))
        assert results.count(None) == 1
        assert await keeper().read() in results

    async def test_the_mark_of_a_promotion_is_kept_and_taken_away(
        self, keeper: Callable[[], RecordKeeper]
    ) -> None:
        """A record has the mark that its last change has."""
        given = (await keeper().create(A, [A])).group_id
        marked = await keeper().propose(Proposal(1, 2, "b", frozenset({B}), unclean=2))
        assert await keeper().read() == marked
        assert marked == GroupRecord(2, 2, "b", frozenset({B}), 2, 2, given)
        settled = await keeper().propose(Proposal(2, 2, "b", frozenset({B})))
        # A broker that was away meanwhile must see that there was one.
        assert await keeper().read() == settled
        assert settled == GroupRecord(3, 2, "b", frozenset({B}), 0, 2, given)

    async def test_who_acknowledges_stays_until_a_change_says_otherwise(
        self, keeper: Callable[[], RecordKeeper]
    ) -> None:
        """A group begins with all in sync; a change that says nothing of it leaves it."""
        made = await keeper().create(A, [A, B])
        assert made.ack == ACK_IN_SYNC
        change = Proposal(1, 1, "a", frozenset({A, B}), ack=ACK_LEADER)
        assert await keeper().propose(change) == made._replace(version=2, ack=ACK_LEADER)
        shrunk = await keeper().propose(Proposal(2, 1, "a", frozenset({A})))
        assert shrunk == await keeper().read()
        assert (shrunk.ack, shrunk.lossy) == (ACK_LEADER, 0)
        back = Proposal(3, 1, "a", frozenset({A}), ack=ACK_TO_IN_SYNC)
        assert (await keeper().propose(back)).ack == ACK_TO_IN_SYNC
        assert (await keeper().propose(back._replace(seen=4, ack=ACK_IN_SYNC))).ack == ACK_IN_SYNC
        assert (await keeper().read()).ack == ACK_IN_SYNC

    @pytest.mark.parametrize("ack", [ACK_IN_SYNC, ACK_TO_IN_SYNC, ACK_LEADER])
    async def test_an_election_may_lose_messages_while_not_all_in_sync_have_them(
        self, keeper: Callable[[], RecordKeeper], ack: str
    ) -> None:
        """Every keeper notes it alike."""
        one = keeper()
        loses = ack != ACK_IN_SYNC
        await one.create(A, [A, B, C])
        await one.propose(Proposal(1, 2, "a", frozenset({A, B, C}), ack=ack))
        # Another one.
        found = await one.propose(Proposal(2, 3, "b", frozenset({B, C})))
        assert found.lossy == (3 if loses else 0)
        # The same one, which has its disk still.
        found = await one.propose(Proposal(3, 4, "b", frozenset({B, C})))
        assert found.lossy == (3 if loses else 0)
        # A change of the set, and then one to which the leader handed over.
        await one.propose(Proposal(4, 4, "b", frozenset({B, C, A})))
        found = await one.propose(Proposal(5, 5, "c", frozenset({B, C, A}), complete=True))
        assert found.lossy == (3 if loses else 0)
        # The same name with another disk.
        other = Identity("c", "another disk")
        found = await one.propose(Proposal(6, 6, "c", frozenset({B, other})))
        assert found == await keeper().read()
        assert (found.lossy, found.ack, found.epoch) == (6 if loses else 0, ack, 6)
        # An operator promotes a broker, and it is elected then.
        await one.propose(Proposal(7, 7, "a", frozenset({A}), unclean=7))
        found = await one.propose(Proposal(8, 8, "a", frozenset({A}), unclean=7))
        assert (found.lossy, found.unclean) == (7, 7)

    async def test_what_a_broker_knows_of_groups_is_kept_with_its_report(
        self, keeper: Callable[[], RecordKeeper]
    ) -> None:
        """A broker of an earlier version is recognised."""
        await keeper().create(A, [A])
        await keeper().register(A, [])
        await keeper().register(B, [], level=0)
        assert [one.level for one in await keeper().registered()] == [FEATURE_LEVEL, 0]

    async def test_a_group_has_an_id_that_no_change_touches(
        self, keeper: Callable[[], RecordKeeper]
    ) -> None:
        """The id is made with the record, and each broker reads the same one."""
        made = await keeper().create(A, [A, B])
        assert len(made.group_id) >= 32
        assert await keeper().create(B, [B], 9) == made
        changed = await keeper().propose(Proposal(1, 2, "b", frozenset({B})), made.group_id)
        assert changed.group_id == (await keeper().read()).group_id == made.group_id

    async def test_a_change_of_another_group_is_refused(
        self, keeper: Callable[[], RecordKeeper]
    ) -> None:
        """A broker of a group that was deleted changes nothing of the one that was made in its place."""
        made = await keeper().create(A, [A])
        with pytest.raises(Refused) as refused:
            await keeper().propose(Proposal(1, 2, "b", frozenset({B})), "the id of another group")
        assert refused.value.record == await keeper().read() == made

    async def test_the_last_report_of_each_broker_is_kept_until_it_is_dropped(
        self, keeper: Callable[[], RecordKeeper]
    ) -> None:
        """Reports are kept by the names of brokers, and change nothing of the record."""
        record = await keeper().create(A, [A])
        first = [LogPlace("forever", 1, 100), LogPlace("transient", 0, 0)]
        later = [LogPlace("forever", 4, 1 << 40), LogPlace("transient", 0, 0)]
        other = Identity("a", "another disk")
        assert await keeper().register(A, first) == {"a"}
        assert await keeper().register(B, first) == {"a", "b"}
        assert await keeper().register(other, later) == {"a", "b"}
        found = await keeper().registered()
        assert [one[:2] for one in found] == [(other, tuple(later)), (B, tuple(first))]
        assert all(0 <= one.age_ms < 60_000 for one in found)
        await keeper().forget("a")
        await keeper().forget("a")
        assert [one.member for one in await keeper().registered()] == [B]
        assert await keeper().read() == record

    async def test_an_epoch_does_not_go_back(self, keeper: Callable[[], RecordKeeper]) -> None:
        """A lower epoch is refused."""
        record = await keeper().create(A, [A, B])
        later = await keeper().propose(Proposal(record.version, 5, "b", frozenset({B})))
        with pytest.raises(Refused):
            await keeper().propose(Proposal(later.version, 4, "a", frozenset({A})))
