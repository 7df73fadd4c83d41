"""Results of commands are told in one form, and the newest ones are counted."""

from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.domain.stream import EventStream, Rejection
from headrace.errors import DamagedStream
from headrace.journey.command_result import NewestResults, newest_results, plain_result, result_row
from headrace.journey.command_search import FoundCommand
from headrace.settings import Settings
from headrace.stores.base import CommandLetter, LetterState, StoredStream
from headrace.stores.database.schema import upgrade
from headrace.stores.open import open_event_store
from tests.unit.headrace.journey.shop import Ordered, shop

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def stream(number: int, **more: Any) -> EventStream:
    told: dict[str, Any] = {
        "aggregate_type": "Basket", "aggregate_id": f"a-{number}", "version": 1, "command_id": f"c-{number}",
        "correlation_id": "c-0", "recorded_at": NOW, "events": (Ordered(item="cup"),),
    }  # fmt: skip
    return EventStream(**told | more)


def rejected(number: int) -> EventStream:
    why = Rejection(error="SoldOut", sentence="no tea", command_name="Order", command_version=1, command_data={})  # fmt: skip
    return stream(number, version=None, events=(), rejection=why)


def letter(state: LetterState) -> CommandLetter:
    return CommandLetter(
        aggregate_id="ann", command_id="c-1", name="Order", state=state, parked_at=NOW, error="KeyError",
        sentence="no shelf", key="ann", headers={}, body=b"",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("more", "status", "error", "version"),
    [
        ({"stream": stream(1)}, "executed", "", 1),
        ({"stream": rejected(1)}, "rejected", "SoldOut", None),
        ({"stream": stream(1, version=None, events=())}, "unchanged", "", None),
        ({"damage": "its checksum differs"}, "damaged", "", None),
        ({"letter": letter(LetterState.PARKED)}, "parked", "KeyError", None),
        ({"letter": letter(LetterState.HELD)}, "held", "KeyError", None),
        ({}, "unknown", "", None),
    ],
)
def test_a_command_has_a_status_and_an_error(more, status, error, version) -> None:
    told = plain_result(FoundCommand("ann", "c-1", chain="c-0", **more))
    assert (told["status"], told["error"], told["version"]) == (status, error, version)
    assert told["caused_by"] == "c-0"


def test_a_row_has_names_of_events_and_a_damaged_one_says_why() -> None:
    row = result_row(StoredStream(position=7, stream=stream(1)))
    assert (row["position"], row["status"], row["events"]) == (7, "executed", ["Ordered"])
    damaged = result_row(DamagedStream(8, "ann", 2, "c-2", "its checksum differs"))
    assert (damaged["status"], damaged["sentence"]) == ("damaged", "its checksum differs")


async def test_the_newest_results_are_counted_and_come_a_page_at_a_time(tmp_path) -> None:
    urls = {name: f"sqlite:///{tmp_path}/{name}.db" for name in ("event_store", "read_models")}
    for url in urls.values():
        await upgrade(url)
    store = await open_event_store(urls["event_store"], shop.serializer)
    await store.append([*(stream(number) for number in range(1, 5)), rejected(5)])
    await store.aclose()
    first = await newest_results(shop, Settings(**urls), rows=2)
    assert [result_row(one)["command_id"] for one in first.page] == ["c-5", "c-4"]
    assert first.plain["outcomes"] == [
        {"status": "executed", "error": "", "commands": 4},
        {"status": "rejected", "error": "SoldOut", "commands": 1},
    ]
    assert (first.counted, first.plain["parked"], first.plain["conflicts"]) == (5, [], 0)
    further = await newest_results(shop, Settings(**urls), before=first.following, rows=5)
    assert [result_row(one)["command_id"] for one in further.page] == ["c-3", "c-2", "c-1"]
    assert further.following is None


def test_commands_that_met_too_many_conflicts_are_counted_apart() -> None:
    found = NewestResults([], None, {}, 0, {"Busy": 2, "KeyError": 3})
    assert found.plain["conflicts"] == 2
    assert found.plain["parked"][0] == {"error": "KeyError", "commands": 3}
