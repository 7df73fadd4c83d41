"""Every keeper of a group's record keeps the same promises."""

from collections.abc import AsyncIterator, Callable

import pytest

from headrace_mq.cluster.record import RecordKeeper
from headrace_mq.cluster.records.etcd import EtcdRecord
from headrace_mq.cluster.records.memory import MemoryRecord
from headrace_mq.cluster.records.postgres import PostgresRecord
from headrace_mq.testing.conformance.record import RecordConformance


class TestMemoryRecord(RecordConformance):
    @pytest.fixture
    def keeper(self) -> Callable[[], RecordKeeper]:
        shared = MemoryRecord()
        return lambda: shared


class TestPostgresRecord(RecordConformance):
    @pytest.fixture
    async def keeper(self, postgres_database: str) -> AsyncIterator[Callable[[], RecordKeeper]]:
        made: list[PostgresRecord] = []

        def make() -> RecordKeeper:
            made.append(
                PostgresRecord(postgres_database, cluster="c", group="g1", timeout_ms=20_000)
            )
            return made[-1]

        yield make
        for record in made:
            await record.aclose()


class TestEtcdRecord(RecordConformance):
    @pytest.fixture
    def keeper(self, etcd_url: str) -> Callable[[], RecordKeeper]:
        return lambda: EtcdRecord(etcd_url, cluster="c", group="g1", timeout_ms=20_000)
