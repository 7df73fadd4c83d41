"""
What every keeper of a group's record must do; subclass it in your tests, and give it your keeper.

Used by `tests/conformance/test_record.py` for each keeper of `headrace_mq.cluster.records`. Tests speak to keepers as several
brokers do, at once.
"""

import asyncio
from collections.abc import Callable

import pytest

from headrace_mq.cluster.record import (
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
