"""Which streams of a batch are next for a process, on a real database."""

from functools import partial
from typing import Any

from headrace.processes.versions import Admitted, VersionsMissing, admit, store_versions
from headrace.projections.tables.read_models import ReadModels
from headrace.subscriptions.gate import Gap


async def give(models: ReadModels, *streams: Any) -> Admitted | VersionsMissing:
    return await models.transact(partial(admit, process="copies", streams=streams))


async def test_duplicate_streams_are_left_out_and_rejections_pass(
    read_models: ReadModels, domain: Any
) -> None:
    await read_models.transact(partial(store_versions, process="copies", versions={"a": 2}))
    rejection = domain.rejection("a", "c")
    old, new, other = domain.stream("a", 2), domain.stream("a", 3), domain.stream("b", 1)
    admitted = await give(read_models, old, rejection, new, new, other)
    assert admitted == Admitted(streams=(rejection, new, other), versions={"a": 3, "b": 1})
    again = await read_models.transact(partial(admit, process="others", streams=[other]))
    assert again.streams == (other,)


async def test_a_batch_with_a_gap_names_the_missing_versions(
    read_models: ReadModels, domain: Any
) -> None:
    await read_models.transact(partial(store_versions, process="copies", versions={"a": 2}))
    missing = await give(read_models, domain.stream("b", 1), domain.stream("a", 5))
    assert missing == VersionsMissing(
        place=1, aggregate_id="a", gap=Gap(after_version=2, to_version=4)
    )


async def test_stored_versions_move_on(read_models: ReadModels, domain: Any) -> None:
    for version in (1, 2):
        await read_models.transact(
            partial(store_versions, process="copies", versions={"a": version})
        )
    assert await give(read_models, domain.stream("a", 2)) == Admitted(streams=(), versions={})
