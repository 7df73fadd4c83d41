"""A replica has the leader's bytes, cuts what the leader never had, and forgets what the leader deleted."""

from typing import Any

from headrace_mq.cluster.records.memory import MemoryRecord
from headrace_mq.store.segment.checkpoint import read_checkpoint, write_checkpoint


async def copy(followers: Any, place: Any, record: Any) -> None:
    place.member.on_record(await record.read())
    for _ in range(40):
        await place.step(followers)


async def test_a_replica_has_what_the_leader_has(places: list[Any], record: Any) -> None:
    a, b = places
    followers = await a.lead(record)
    a.append(*range(20))
    await a.until(lambda: a.logs.ends()["forever"] > 60_000)
    topics = a.settings.directory / "metadata" / "topics.json"
    topics.parent.mkdir(exist_ok=True)
    write_checkpoint(a.replica._files, topics, b"topics")
    followers.on_renamed(topics)
    await copy(followers, b, record)
    assert b.logs.ends() == a.logs.ends()
    assert b.end() == a.end()
    own = b.settings.directory / "metadata" / "topics.json"
    assert read_checkpoint(b.replica._files, own) == b"topics"
    assert b.logs.by_name["forever"].history == a.logs.by_name["forever"].history


async def test_a_replica_cuts_what_only_it_has(places: list[Any]) -> None:
    a, b = places
    record = MemoryRecord()
    await record.create(a.me, [a.me, b.me])
    alone = await a.lead(record)
    a.append(1, 2, 3)
    await a.until(lambda: a.logs.ends()["forever"] > 0)
    alone.close()
    followers = await b.lead(record)
    b.append(9)
    await b.until(lambda: b.logs.ends()["forever"] > 0)
    await a.replica.aclose()
    a.replica.open()
    await copy(followers, a, record)
    assert a.logs.ends() == b.logs.ends()
    assert b.end() == 1
    await a.replica.aclose()
    a.replica.open()
    assert a.end() == 1


async def test_a_replica_deletes_what_the_leader_deleted(places: list[Any], record: Any) -> None:
    a, b = places
    followers = await a.lead(record)
    await copy(followers, b, record)
    for number in range(40):
        a.append(number)
        end = a.logs.ends()["forever"]
        await a.until(lambda end=end: a.logs.ends()["forever"] > end)
    followers.commit()
    await copy(followers, b, record)
    deleted = a.logs.store.delete_segments("forever", a.logs.ends()["forever"])
    assert deleted
    await copy(followers, b, record)
    assert [one.base for one in b.logs.store.segments("forever")] == [
        one.base for one in a.logs.store.segments("forever")
    ]


async def test_an_old_answer_changes_nothing(places: list[Any], record: Any) -> None:
    a, b = places
    followers = await a.lead(record)
    b.member.on_record(await record.read())
    answer = await b.step(followers)
    await b.replica.take(b.member, answer)
    await b.replica.take(b.member, type(answer)(answer.epoch - 1))
    assert b.member.epoch == answer.epoch
