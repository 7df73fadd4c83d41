"""Who is asked before segments go."""

from types import SimpleNamespace
from typing import Any

from headrace_mq.broker.assembly import delete_archived, spare


class Rests:
    """The schedule or the transactions, which still need what stands behind a position."""

    def __init__(self, needed: int) -> None:
        self.needed = needed

    def spare(self, segments: Any, before: int) -> int:
        return min(before, self.needed)


def state_of(**choices: Any) -> Any:
    deleted: list[tuple[str, int]] = []

    def delete(log: str, before: int) -> int:
        deleted.append((log, before))
        return 1

    store = SimpleNamespace(segments=lambda log: [], delete_segments=delete, deleted=deleted)
    parts = {"scheduler": Rests(900), "transactions": Rests(900), "archive": None}
    return SimpleNamespace(store=store, **{**parts, **choices})


def test_segments_stay_that_the_schedule_the_transactions_or_the_archive_still_need() -> None:
    assert spare(state_of(), [], 1_000) == 900
    assert spare(state_of(scheduler=Rests(300)), [], 1_000) == 300
    assert spare(state_of(transactions=Rests(200)), [], 1_000) == 200
    archive = SimpleNamespace(position={"transient": 100}.__getitem__)
    assert spare(state_of(archive=archive), [], 1_000) == 100


def test_archived_segments_are_deleted_but_no_compacted_ones() -> None:
    archive: Any = SimpleNamespace(position=lambda _: 800, beyond_window=lambda _: 700)
    state = state_of(scheduler=Rests(500), archive=archive)
    delete_archived(state, archive)
    assert sorted(state.store.deleted) == [("forever", 700), ("transient", 500)]
