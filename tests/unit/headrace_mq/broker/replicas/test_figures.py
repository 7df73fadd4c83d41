"""The figures of a group: a leader tells how far its replicas are."""

from typing import Any

from headrace_mq.broker.replicas.figures import ReplicaFigures


async def test_a_leader_knows_how_far_its_replica_is(places: list[Any], record: Any) -> None:
    a, b = places
    followers = await a.lead(record)
    assert followers.figures() == ()
    b.member.on_record(await record.read())
    for _ in range(3):
        await b.step(followers)
    (found,) = followers.figures()
    assert found == ReplicaFigures(b.me.name, in_sync=False, lag_bytes=0, lag_ms=found.lag_ms)
    assert (found.loss_bytes, found.loss_ms) == (0, 0)
    a.append(1, 2)
    await a.until(lambda: a.logs.ends()["forever"] > 0)
    (found,) = followers.figures()
    assert found.lag_bytes == a.logs.ends()["forever"]
    # It is not in the set, so what the leader has is acknowledged without it, and it is not elected.
    assert found.loss_bytes == found.lag_bytes
    assert followers.may_lose() == (0, 0)
    for _ in range(3):
        await b.step(followers)
    (found,) = followers.figures()
    assert (found.lag_bytes, found.loss_bytes, found.loss_ms) == (0, 0, 0)
