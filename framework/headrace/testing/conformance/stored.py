"""
What every event store must answer about itself and what it holds.

Part of `EventStoreConformance`.
"""

import asyncio
from datetime import UTC
from uuid import UUID

from headrace.stores.base import EventStore
from headrace.testing.conformance.streams import rejected, stream

__all__ = ["StoredConformance"]


class StoredConformance:
    """The suite; subclass it with the fixtures `store` and `twin`."""

    async def test_a_store_is_the_same_one_for_all_who_open_it(
        self, store: EventStore, twin: EventStore
    ) -> None:
        """Those who ask at once, at first or later, get one identity with a key of 32 bytes."""
        first, *others = await asyncio.gather(
            *[(store, twin)[number % 2].identity() for number in range(10)]
        )
        assert others == [first] * 9
        assert UUID(first.id).version == 7
        assert len(first.seal_key) == 32
        assert first.made_at.tzinfo is UTC
        await store.append([stream("a", 1)])
        assert await store.identity() == first

    async def test_many_commands_are_found_at_once(self, store: EventStore) -> None:
        """What commands stored is found by aggregate and command, rejections included."""
        batch = [stream("a", 1, "c"), stream("b", 1, "c"), rejected("b", "no"), stream("c", 1, "d")]
        await store.append(batch)
        asked = {("a", "c"), ("b", "no"), ("c", "c"), ("d", "d")}
        assert await store.find_stored(asked) == {("a", "c"): batch[0], ("b", "no"): batch[2]}
        assert await store.find_stored([]) == {}
        many = [*(stream("m", number) for number in range(1, 200)), rejected("m", "r")]
        await store.append(many)
        expected = {("m", each.command_id): each for each in many}
        assert await store.find_stored([*expected, ("m", "c"), ("a", "r")]) == expected

    async def test_a_survey_is_what_reading_finds_of_all_or_of_one(self, store: EventStore) -> None:
        """Where nothing is damaged, a survey gives what is stored, in pages."""
        batch = [stream("a", 1), rejected("b", "no"), stream("b", 1), stream("a", 2)]
        await store.append(batch)
        every = await store.read_all()
        assert list(await store.survey()) == every
        assert list(await store.survey(limit=2, after_position=every[1].position)) == every[2:]
        assert list(await store.survey(aggregate_id="b")) == every[1:3]
        later = await store.survey(aggregate_id="a", after_position=every[0].position)
        assert list(later) == every[3:]
