"""A generation that is built goes live with the epochs in which all that it has read is right."""

from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any

import pytest

from headrace.lineage.generation_epochs import GenerationEpochs, copy_epochs
from headrace.lineage.marks import note_epochs, read_epochs
from headrace.projections.tables.contents import write_offsets
from headrace.projections.tables.read_models import ReadModels
from headrace.transports.base import TopicLineage

TOPIC = "shop.events"
NEW = ("totals", 2)


class Brokers:
    """Two queues, whose brokers may lose messages."""

    def __init__(self) -> None:
        self.epochs: Mapping[int, int] = {0: 3, 1: 3}
        self.changed: Mapping[int, int] = {}
        self.asked: list[tuple[Mapping[int, int], bool]] = []

    async def ask(self, known: Mapping[int, int], *, patient: bool) -> TopicLineage:
        self.asked.append((dict(known), patient))
        changed = {number: at for number, at in self.changed.items() if known.get(number) == 3}
        return TopicLineage(identity="", ranges={}, epochs=self.epochs, changed=changed)


@pytest.fixture
async def models(totals: Any) -> AsyncIterator[ReadModels]:
    models = ReadModels("sqlite://")
    await models.ensure(totals)
    async with models.begin() as connection:
        for generation in (1, 2):
            target = models.target(totals, generation)
            await write_offsets(connection, target, {(TOPIC, 0): 9, (TOPIC, 1): 9})
    yield models
    await models.aclose()


async def noted(models: ReadModels, reader: tuple[str, int] = NEW) -> dict[int, int]:
    return await models.transact(partial(read_epochs, reader=reader))


async def test_a_generation_has_the_epochs_from_before_it_was_read(models: ReadModels) -> None:
    brokers = Brokers()
    epochs = GenerationEpochs(topic=TOPIC, ask=brokers.ask)
    await epochs.begin(models, NEW, await epochs.now())
    assert await noted(models) == {0: 3, 1: 3}
    assert await noted(models, ("totals", 1)) == {}
    # A rebuild that goes on with it keeps those of what was read before.
    await epochs.begin(models, NEW, {0: 5, 1: 5, 2: 5})
    assert await noted(models) == {0: 3, 1: 3, 2: 5}


async def test_a_generation_without_a_loss_stays_where_it_is(models: ReadModels) -> None:
    brokers = Brokers()
    epochs = GenerationEpochs(topic=TOPIC, ask=brokers.ask)
    await epochs.begin(models, NEW, await epochs.now())
    brokers.epochs = {0: 4, 1: 3}
    await epochs.settle(models, NEW)
    assert await models.offsets("totals", 2) == {(TOPIC, 0): 9, (TOPIC, 1): 9}
    assert await noted(models) == {0: 4, 1: 3}
    assert brokers.asked == [({}, False), ({0: 3, 1: 3}, True)]


async def test_a_generation_goes_back_alone_to_where_messages_have_changed(
    models: ReadModels,
) -> None:
    brokers = Brokers()
    epochs = GenerationEpochs(topic=TOPIC, ask=brokers.ask)
    await epochs.begin(models, NEW, await epochs.now())
    await models.transact(partial(note_epochs, reader=("totals", 1), epochs={0: 2}))
    brokers.epochs, brokers.changed = {0: 5, 1: 5}, {1: 4}
    await epochs.settle(models, NEW)
    assert await models.offsets("totals", 2) == {(TOPIC, 0): 9, (TOPIC, 1): 4}
    assert await models.offsets("totals", 1) == {(TOPIC, 0): 9, (TOPIC, 1): 9}
    assert await noted(models) == {0: 5, 1: 5}
    assert await noted(models, ("totals", 1)) == {0: 2}


async def test_a_copy_has_the_epochs_of_what_it_was_copied_from(models: ReadModels) -> None:
    await models.transact(partial(note_epochs, reader=NEW, epochs={0: 5, 1: 5}))
    await models.transact(partial(note_epochs, reader=("totals", 1), epochs={0: 2}))
    await models.transact(partial(copy_epochs, source=("totals", 1), target=NEW))
    assert await noted(models) == {0: 2, 1: 5}
