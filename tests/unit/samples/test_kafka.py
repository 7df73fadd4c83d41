"""What a Kafka on this machine is started with, and what is said where it cannot be had."""

from pathlib import Path

import pytest

from samples import kafka
from samples.kafka import KafkaMissing, broker_settings, fetch, jars

PORTS = [(9092, 1), (9093, 2), (9094, 3)]


def test_three_brokers_keep_three_copies_and_vote_together(tmp_path: Path) -> None:
    told = [broker_settings(node, PORTS, tmp_path) for node in (1, 2, 3)]
    assert {one["controller.quorum.voters"] for one in told} == {
        "1@127.0.0.1:1,2@127.0.0.1:2,3@127.0.0.1:3"
    }
    assert [one["node.id"] for one in told] == ["1", "2", "3"]
    assert {(one["default.replication.factor"], one["min.insync.replicas"]) for one in told} == {
        ("3", "2")
    }


@pytest.mark.parametrize(("asked", "insync"), [(0, "1"), (1, "1")])
def test_one_broker_acknowledges_alone(tmp_path: Path, asked: int, insync: str) -> None:
    told = broker_settings(1, PORTS[:1], tmp_path, min_insync=asked)
    assert (told["default.replication.factor"], told["min.insync.replicas"]) == ("1", insync)


def test_copies_in_sync_can_be_chosen(tmp_path: Path) -> None:
    assert broker_settings(1, PORTS, tmp_path, min_insync=3)["min.insync.replicas"] == "3"


def test_without_jars_the_command_is_named(tmp_path: Path) -> None:
    with pytest.raises(KafkaMissing, match="run 'make kafka' once"):
        jars(tmp_path)


def test_without_java_nothing_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KafkaMissing, match="Java 17"):
        fetch(tmp_path)


def test_a_repository_that_does_not_answer_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "failing"
    program.write_text("#!/bin/sh\necho no route; exit 1\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(kafka, "java", lambda: str(program))
    folder = tmp_path / "kafka"
    with pytest.raises(KafkaMissing, match=r"repo1\.maven\.org.*copy .*jars-"):
        fetch(folder)
    assert [path.name for path in folder.iterdir()] == ["fetch.log"]
    assert "no route" in (folder / "fetch.log").read_text(encoding="utf-8")


def test_jars_that_are_there_are_not_fetched_again(tmp_path: Path) -> None:
    there = tmp_path / f"jars-{kafka.VERSION}"
    there.mkdir()
    assert fetch(tmp_path) == there
