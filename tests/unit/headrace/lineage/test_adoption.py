"""Versions that a restored store has not are taken back to those that it has."""

from functools import partial
from typing import Any

from headrace.handlers.progress import HandlerProgress
from headrace.lineage.adoption import adopt_store
from headrace.lineage.marks import read_kept, write_marks
from headrace.lineage.verdict import Mark
from headrace.processes.versions import store_versions
from headrace.projections.tables.read_models import ReadModels
from headrace.stores.memory.store import MemoryEventStore


async def test_versions_beyond_the_store_are_lowered(domain: Any) -> None:
    models, store, progress = ReadModels("sqlite://"), MemoryEventStore(), HandlerProgress("mail")
    await store.append([domain.stream("a", version) for version in (1, 2, 3)])
    await store.append([domain.stream("b", 1)])
    versions = {"a": 5, "b": 1, "gone": 2}
    await models.transact(partial(progress.advance, versions=versions))
    await models.transact(partial(store_versions, process="orders", versions=versions))
    mark = {0: Mark(next_offset=1, message_id="m")}
    readers = {("handlers:mail", 0): mark, ("topic:t", 0): mark, ("totals", 1): mark}
    await models.transact(partial(write_marks, readers=readers, topic="t1", store="s1"))
    names = ["handlers:mail", "process:orders"]

    assert await adopt_store(models, store, names=names, topic="topic:t") == 4

    read = partial(progress.read, aggregate_ids=["a", "b", "gone"])
    assert await models.transact(read) == ({"a": 3, "b": 1}, set())
    # The second time there is nothing to take back, for the process either.
    assert await adopt_store(models, store, names=names, topic="topic:t") == 0
    kept, _ = await models.transact(
        partial(read_kept, names=["handlers:mail", "topic:t"], topic="t")
    )
    assert [each.topic for each in kept.values()] == [None, None]
    await models.aclose()
