from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace_mq.broker.metadata import producers_file
from headrace_mq.broker.peers import producers as producers_module
from headrace_mq.broker.peers.peers import Peer
from headrace_mq.broker.peers.producers import KeptProducers, Producers
from headrace_mq.protocol.administration import ProducerDescription


def peer(port: int = 1, client_id: str = "me") -> Peer:
    return Peer(client_id=client_id, address=f"10.0.0.1:{port}", software="x 1", since_ms=port)


def described(producer_id: int, port: int = 1) -> ProducerDescription:
    return ProducerDescription(producer_id, "me", f"10.0.0.1:{port}", "x 1", port)


@pytest.fixture
def producers(tmp_path: Path) -> Producers:
    return Producers(producers_file(tmp_path))


def reloaded(tmp_path: Path) -> Producers:
    again = Producers(producers_file(tmp_path))
    again.load()
    return again


def test_a_producer_is_found_by_its_own_id_only(producers: Producers) -> None:
    producers.meet(peer(), 7)
    assert producers.describe([8, 7, 7]) == [described(7)]


def test_a_newer_connection_takes_the_place_of_the_older_one(producers: Producers) -> None:
    producers.meet(peer(1), 7)
    producers.meet(peer(2), 7)
    assert producers.describe([7]) == [described(7, 2)]


def test_batches_without_a_producer_are_nobodys(producers: Producers) -> None:
    one = peer()
    producers.meet(one, 7)
    producers.meet(one, 0)
    assert one.producer_id == 0
    assert producers.describe([0]) == []


def test_producers_are_known_again_after_a_restart(producers: Producers, tmp_path: Path) -> None:
    producers.meet(peer(), 7)
    changes = producers.take_changes()
    assert changes is not None
    producers.write(changes)
    assert reloaded(tmp_path).describe([7]) == [described(7)]


def test_a_damaged_file_is_reported_and_keeps_no_broker_from_starting(tmp_path: Path) -> None:
    file = producers_file(tmp_path)
    file.write(KeptProducers([]))
    file.path.write_bytes(b"x")
    with capture_logs() as logs:
        assert reloaded(tmp_path).describe([7]) == []
    assert [str(file.path) in one["reason"] for one in logs] == [True]


def test_the_file_is_written_only_where_something_is_new(producers: Producers) -> None:
    assert producers.take_changes() is None
    producers.meet(peer(), 7)
    assert producers.take_changes() is not None
    producers.meet(peer(), 7)
    assert producers.take_changes() is None


def test_producers_that_could_not_be_written_are_written_with_the_next_changes(
    producers: Producers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_content: bytes) -> None:
        raise OSError("full")

    producers.meet(peer(), 7)
    changes = producers.take_changes()
    assert changes is not None
    monkeypatch.setattr(producers._file, "write_encoded", fail)
    with pytest.raises(OSError, match="full"):
        producers.write(changes)
    assert producers.take_changes() == changes


def test_above_the_limit_those_that_connected_longest_ago_are_forgotten(
    producers: Producers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(producers_module, "PRODUCERS_REMEMBERED_MAX", 2)
    for producer_id in (7, 8):
        producers.meet(peer(), producer_id)
    producers.meet(peer(2), 7)
    producers.meet(peer(), 9)
    assert [one.producer_id for one in producers.describe([7, 8, 9])] == [7, 9]
    changes: Any = producers.take_changes()
    producers.write(changes)
    again = reloaded(tmp_path)
    again.meet(peer(), 10)
    assert [one.producer_id for one in again.describe([7, 9, 10])] == [9, 10]
