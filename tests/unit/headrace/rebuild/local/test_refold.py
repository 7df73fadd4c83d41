"""Events of some keys, folded from a real topic."""

from datetime import datetime
from typing import Any

import pytest
from pydantic import BaseModel

from headrace import Projection
from headrace.errors import ProjectionError
from headrace.folds import field, first, sum_
from headrace.projections.definition.fold import fold_streams
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.event_topic import EventTopic
from headrace.rebuild.local.partial_rebuild import Refolded
from headrace.rebuild.local.refold import refold


@pytest.fixture
def fold_keys(event_broker: Any, ledger: Any, tmp_path: Any) -> Any:
    async def find_nothing(*_: object) -> list[Any]:
        return []

    async def run(projection: Any, *keys: str, ends: Any = None, missing: Any = None) -> Refolded:
        topic = EventTopic(event_broker.address, ledger.topic_name, messages_max=4)
        target = ReadModels(f"sqlite:///{tmp_path / 'none.db'}").target(projection, 0)
        if ends is None:
            ends = {queue: end for queue, (_, end) in (await topic.ranges()).items()}
        return await refold(
            topic, target, ledger.serializer, missing or find_nothing,
            keys=frozenset(keys), ends=ends,
        )  # fmt: skip

    return run


@pytest.fixture
async def streams(event_broker: Any, ledger: Any) -> list[Any]:
    """Bookings of five aggregates in the topic, with duplicates and a rejection."""
    made = [
        ledger.stream(key, version, ledger.Booked(partner=f"p{version % 3}", amount=version))
        for version in range(1, 7)
        for key in "abcde"
    ]
    await event_broker.publish(*made, *made[3:9], ledger.rejection("a"))
    return made


@pytest.mark.parametrize(("name", "keys"), [("accounts", "bdz"), ("partners", ("p1", "p9"))])
async def test_the_rows_are_those_of_the_whole(
    name: str, keys: Any, fold_keys: Any, streams: Any, ledger: Any
) -> None:
    projection = ledger.app.projection(name)
    whole = fold_streams(projection, {}, streams)
    found = await fold_keys(projection, *keys)
    assert found.rows == {key: whole[key] for key in keys if key in whole}
    assert len(found.rows) == len(keys) - 1
    seen = "bd" if name == "accounts" else "abcde"
    assert found.versions == dict.fromkeys(seen, 6)


class Sum(BaseModel):
    key: str
    total: int = 0
    first_at: datetime | None = None


@pytest.mark.parametrize(("key_of", "keys"), [(None, "bd"), ("partner", ("p1",))])
async def test_declared_folds_make_the_same(
    key_of: str | None, keys: Any, fold_keys: Any, streams: Any, ledger: Any
) -> None:
    sums = Projection("sums", row=Sum, key="key", key_of=key_of)
    sums.on(ledger.Booked, total=sum_("amount"), first_at=first("context.recorded_at"))
    sums.on(ledger.Booked, where=field("amount") > 4, total=sum_("amount"))
    whole = fold_streams(sums, {}, streams)
    assert (await fold_keys(sums, *keys)).rows == {key: whole[key] for key in keys}


async def test_what_lies_behind_the_offsets_is_left_out(
    fold_keys: Any, streams: Any, ledger: Any, event_broker: Any
) -> None:
    topic = EventTopic(event_broker.address, ledger.topic_name, messages_max=100)
    ends = {queue: end for queue, (_, end) in (await topic.ranges()).items()}
    await event_broker.publish(ledger.stream("a", 7, ledger.Ended()))
    assert (await fold_keys(ledger.accounts, "a", ends=ends)).versions == {"a": 6}
    assert (await fold_keys(ledger.accounts, "a")).rows == {"a": None}


async def test_gaps_are_filled_and_counted(
    fold_keys: Any, streams: Any, ledger: Any, event_broker: Any
) -> None:
    late = [
        ledger.stream("a", version, ledger.Booked(partner="p1", amount=9)) for version in (7, 8)
    ]
    await event_broker.publish(late[1])

    async def find(aggregate_id: str, after: int, to: int) -> list[Any]:
        assert (aggregate_id, after, to) == ("a", 6, 7)
        return late[:1]

    whole = fold_streams(ledger.accounts, {}, [*streams, *late])
    found = await fold_keys(ledger.accounts, "a", missing=find)
    assert (found.rows, found.versions) == ({"a": whole["a"]}, {"a": 8})
    assert (found.counts["filled"], found.counts["events"]) == (1, 8)
    with pytest.raises(ProjectionError, match="versions 7 to 7 of aggregate a did not come"):
        await fold_keys(ledger.accounts, "a")


async def test_offsets_that_the_topic_does_not_hold_are_refused(
    fold_keys: Any, streams: Any, ledger: Any
) -> None:
    with pytest.raises(ProjectionError, match="needs every offset before 999"):
        await fold_keys(ledger.accounts, "a", ends={(ledger.topic_name, 0): 999})
