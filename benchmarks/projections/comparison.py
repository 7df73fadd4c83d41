"""
How long rebuilt rows are compared with the live ones, and how long the live projection waits for it.

    python -m benchmarks.projections.comparison [--rows 1000000] [--runs 3] [--postgres URL]

A live generation and a rebuilt one of so many rows, with no difference and with one, in PostgreSQL and
SQLite; rebuilt from the topic, and from the store, where the versions of as many aggregates are compared,
too. `total_s` is all of it, `locked_s` the transaction that has locked the projection; `cpu_us` is the
processor time of this process and the server's for a row. A line of JSON per case, medians of the runs.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel
from sqlalchemy import text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from benchmarks.projections.postgres import cpu_seconds, new_database, server
from headrace.domain.registry import Registry
from headrace.projections.definition.projection import Projection
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.level import Origin, bring_shadow
from headrace.rebuild.switch import Means, Shadow
from headrace.serialization import JsonSerializer
from headrace.stores.database.engines import EngineLimits
from headrace.stores.database.schema import upgrade
from headrace.transports.base import QueueId

OWNER: Final = "the benchmark"
LIMITS: Final = EngineLimits(statement_timeout_ms=1_800_000, idle_transaction_ms=1_800_000)


class Kept(BaseModel):
    """A row with a column of most kinds."""

    kept_id: str
    owner: str = ""
    balance: Decimal = Decimal(0)
    events: int = 0
    closed: bool = False
    seen_at: datetime | None = None


KEPT: Final = Projection("kept", row=Kept, key="kept_id")
SERIES: Final = {
    "postgresql": "SELECT n FROM generate_series(1, :rows) AS n",
    "sqlite": (
        "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < :rows)"
        " SELECT n FROM s"
    ),
}
KEY: Final = {"postgresql": "lpad(n::text, 12, '0')", "sqlite": "printf('%012d', n)"}


class Timed(ReadModels):
    """Read models that note how long write transactions last.

    Attributes:
        locked_s: of each one.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url, limits=LIMITS)
        self.locked_s: list[float] = []

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        """As `ReadModels.begin`."""
        async with super().begin() as connection:
            began = time.perf_counter()
            yield connection
        self.locked_s.append(time.perf_counter() - began)


async def fill(models: ReadModels, rows: int) -> None:
    """Makes a live generation and a shadow of the same rows."""
    await models.ensure(KEPT)
    await models.begin_shadow(KEPT, OWNER)
    dialect = models.engine.dialect.name
    price = "n * 1.25" if dialect == "postgresql" else "printf('%.2f', n * 1.25)"
    async with models.begin() as connection:
        for generation in (1, 2):
            statement = (
                f"INSERT INTO kept__{generation} SELECT {KEY[dialect]}, 'owner ' || n, {price}, n,"
                f" false, NULL FROM ({SERIES[dialect]}) AS numbers"
            )
            await connection.execute(text(statement), {"rows": rows})
            versions = (
                "INSERT INTO projection_versions (name, generation, aggregate_id, version)"
                f" SELECT 'kept', {generation}, {KEY[dialect]}, 5 FROM ({SERIES[dialect]}) AS numbers"
            )
            await connection.execute(text(versions), {"rows": rows})
    if dialect == "postgresql":
        async with models.engine.connect() as connection:
            loose = await connection.execution_options(isolation_level="AUTOCOMMIT")
            await loose.execute(text("ANALYZE"))


class Still:
    """An event store of which everything is folded."""

    async def end(self) -> int:
        """Returns a position."""
        return 1

    async def read(self, *_of: object) -> AsyncIterator[tuple[()]]:
        """Yields nothing."""
        return
        yield


async def no_ends() -> dict[QueueId, int]:
    """Returns the end of no queue."""
    return {}


async def nothing(*_of: object) -> tuple[()]:
    """Finds no streams."""
    return ()


async def measure(url: str, rows: int, runs: int, pid: int | None) -> list[dict[str, Any]]:
    """Compares with no difference, and then with one."""
    await upgrade(url)
    models = Timed(url)
    serializer = JsonSerializer(Registry("command"), Registry("event"))
    means = Means(feed=Still().read, serializer=serializer, missing=nothing, live_wait_ms=0)
    origins = {"topic": None, "store": Origin(store=Still(), ends=no_ends)}  # type: ignore[arg-type]  # two of its methods
    shadow = Shadow(projection=KEPT, generation=2, owner=OWNER)
    try:
        await fill(models, rows)
        found = []
        for differences, source in ((0, "topic"), (0, "store"), (1, "topic"), (1, "store")):
            table = models.table_for(KEPT, 1)
            if differences:
                async with models.begin() as connection:
                    one = update(table).where(table.c.kept_id == "000000000007")
                    await connection.execute(one.values(events=0))
            said: dict[str, list[float]] = {"total_s": [], "locked_s": [], "cpu_us": []}
            for _ in range(runs):
                models.locked_s.clear()
                began, used = time.perf_counter(), time.process_time() + cpu_seconds(pid)
                outcome = await bring_shadow(
                    models, shadow, means, origins[source], verify=True, switch=False
                )
                assert (outcome.compared, outcome.mismatches) == (rows, differences)
                said["total_s"].append(time.perf_counter() - began)
                said["locked_s"].append(max(models.locked_s))
                spent = time.process_time() + cpu_seconds(pid) - used
                said["cpu_us"].append(spent / rows * 1_000_000)
            medians = {name: round(statistics.median(each), 3) for name, each in said.items()}
            found.append({"source": source, "differences": differences, **medians})
        return found
    finally:
        await models.aclose()


async def run(asked: argparse.Namespace) -> None:
    """Prints a line per case."""
    with server(asked.postgres) as (where, pid):
        for database in ("postgresql", "sqlite"):
            async with AsyncExitStack() as stack:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                url = f"sqlite:///{folder / 'read.db'}"
                if database == "postgresql":
                    made = await stack.enter_async_context(new_database(where))
                    url = made.render_as_string(hide_password=False)
                for line in await measure(url, asked.rows, asked.runs, pid):
                    print(
                        json.dumps({"database": database, "rows": asked.rows, **line}), flush=True
                    )


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--postgres", help="URL of a server; without it one is started")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
