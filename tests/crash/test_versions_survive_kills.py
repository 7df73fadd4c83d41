"""kill -9 while a newer version is built next to the live one, and at its switch: no table mixes versions."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.projections.tables.generation_tables import find_all
from headrace.projections.tables.read_models import ReadModels
from headrace.stores.database.schema import upgrade
from tests.unit.headrace.readers import make_totals

ROOT = Path(__file__).parents[2]
KILLS = 6
STREAMS = 60
# To set up takes 60,000 calls, and all of it 250,000.
CALLS = 250_000

# Two runners, of versions 1 and 2, fold one topic until version 2 is live. Each attempt is a fork, and all
# but the last kill themselves at a call of some function, chosen at random.
RUNNERS = """
import asyncio, json, os, random, signal, sys, threading
from headrace.projections.runner import ProjectionRunner
from headrace.projections.tables.read_models import ReadModels
from headrace.settings import Settings
from tests.unit.headrace.readers import (
    Added, Domain, FakeStore, FakeTransport, JsonSerializer, Registry, make_totals
)

asked = json.loads(sys.argv[1])
chance = random.Random(asked["seed"])

def count_to(calls):
    left = calls
    def count(frame, event, argument):
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    threading.setprofile(count)
    sys.setprofile(count)

async def fold():
    domain, models = Domain(), ReadModels(asked["url"])
    events = Registry("event")
    events.add(Added)
    serializer = JsonSerializer(Registry("command"), events)
    transport = FakeTransport(serializer)
    transport.poll_max = 7
    for number in range(asked["streams"]):
        transport.put(domain.stream("abcde"[number % 5], number // 5 + 1))
    runners = [
        ProjectionRunner(
            projection=make_totals(version=version), app_name="shop", read_models=models,
            store=FakeStore(), transport=transport, serializer=serializer, settings=Settings(),
            switch_check_ms=5, batch_interval_ms=1,
        )
        for version in (1, 2)
    ]
    tasks = [asyncio.create_task(each.run()) for each in runners]
    while True:
        await asyncio.sleep(0.005)
        try:
            state = await models.state("totals")
        except Exception:
            continue
        offsets = [await models.offsets("totals", number) for number in (1, 2)]
        if state.version == 2 and offsets == [transport.ends()] * 2:
            break
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await models.aclose()

kills = 0
while True:
    calls = chance.randrange(20_000, asked["calls"]) if kills < asked["kills"] else 0
    child = os.fork()
    if not child:
        if calls:
            count_to(calls)
        asyncio.run(fold())
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        break
    kills += 1
print(json.dumps({"kills": kills, "status": os.waitstatus_to_exitcode(status)}), flush=True)
"""


async def rows(models: ReadModels, **of: int) -> dict[str, tuple[int, int]]:
    reader = models.reader(make_totals(), **of)
    return {row.counter_id: (row.total, row.folded) async for row in reader.rows()}


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'read.db'}"
    url: str = request.getfixturevalue("postgres_database")
    return url


@pytest.mark.timeout(180)
async def test_killed_versions_leave_no_table_of_two_versions(database_url: str) -> None:
    await upgrade(database_url)
    models = ReadModels(database_url)
    # The older version was there first.
    await models.ensure(make_totals())
    asked: dict[str, Any] = {
        "url": database_url, "seed": 1, "streams": STREAMS, "calls": CALLS, "kills": KILLS,
    }  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", RUNNERS, json.dumps(asked), cwd=ROOT,
        stdout=asyncio.subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    output, _ = await process.communicate()
    ended = json.loads(output.splitlines()[-1])
    assert ended["status"] == 0
    assert ended["kills"] >= 1
    total = sum(range(1, STREAMS // 5 + 1))
    for number, version in ((1, 1), (2, 2)):
        # Each fold of version 2 adds 2 to `folded`: a row of both versions would have a sum between.
        expected = dict.fromkeys("abcde", (total, version * STREAMS // 5))
        assert await rows(models, generation=number) == expected
    assert await rows(models) == await rows(models, generation=2)
    state = await models.state("totals")
    assert (state.generation, state.previous_generation) == (2, 1)
    async with models.snapshot() as connection:
        assert set(await find_all(connection, "totals")) == {1, 2}
    await models.aclose()
