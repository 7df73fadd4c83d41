"""A broker with a login, a tea shop that ran on it, and a console of both: what the tests of its pages share."""

import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from pydantic import SecretStr
from sqlalchemy import text

from headrace.alarms.folder import AlarmFolder
from headrace.alarms.settings import AlarmSettings
from headrace.alarms.watcher import AlarmWatcher
from headrace.console.server import serving_console
from headrace.console.settings import ConsoleSettings
from headrace.console.verbs import cluster
from headrace.console.verbs.alarm import AlarmVerbs
from headrace.console.verbs.application import ApplicationVerbs
from headrace.console.verbs.cluster import ClusterVerbs
from headrace.console.verbs.verb import Given
from headrace.figures.cluster import RecordPlace
from headrace.settings import Settings
from headrace.stores.database.engines import create_engine
from headrace.stores.database.schema import upgrade
from headrace_mq import AdminClient, Producer
from headrace_mq.broker.server import Broker
from headrace_mq.broker.stopped_broker import add_user
from headrace_mq.cluster.record import GroupRecord, Identity, LogPlace, Registration
from headrace_mq.settings import BrokerSettings, StoreSettings
from tests.integration.console import tea_shop
from tests.integration.console.tea_shop import MENDED, app

# A browser on a busy machine.
WAIT_MS = 120_000
PASSWORD = "a long pencil"
ROOT = Path(__file__).parents[3]
# Who may see everything, and change nothing. A third user, zoe, may do nothing at all.
READER = ("read topic:*", "read group:*", "read cluster")
FIRST, SECOND = Identity("a:1", "x"), Identity("b:2", "y")
# What the record of a group of two brokers says, of which the first one leads, and what they reported.
RECORD = GroupRecord(1, 3, FIRST.name, frozenset({FIRST, SECOND}), group_id="x")
KNOWN = [
    Registration(FIRST, (LogPlace("forever", 3, 7_919),), 5_000),
    Registration(SECOND, (LogPlace("forever", 3, 7_907),), 7_000),
]
LOSS_BYTES, LOSS_MS = 1_013, 2_500


class Brokers(ClusterVerbs):
    """A group of brokers; the leader of a real one tells what a failover may lose."""

    async def _status(self, admin: AdminClient, given: Given) -> dict[str, Any]:
        told = await super()._status(admin, given)
        return told | {"loss_bytes": LOSS_BYTES, "loss_ms": LOSS_MS}


async def look(_: RecordPlace) -> tuple[GroupRecord, list[Registration]]:
    """In place of a read of the record, which stands in a database."""
    return RECORD, KNOWN


@dataclass
class World:
    """What a test sees of it.

    Attributes:
        own: the broker's address with the administrator, root.
        admin: root's connection.
        producer: of root, which stays open.
        urls: of the tea shop's databases.
        folder: of the watcher of alarms.
        home: where the console is.
        posted: how often the receiver of alarms was asked.
    """

    own: str
    admin: AdminClient
    producer: Producer
    urls: dict[str, str]
    folder: AlarmFolder
    alarms: AlarmVerbs
    application: ApplicationVerbs
    home: str = ""
    posted: list[bytes] = field(default_factory=list)

    @property
    def settings(self) -> Settings:
        """Of the tea shop: what fails is parked at once."""
        return Settings(
            broker=self.own, error_retries_max=0, result_timeout_ms=2 * WAIT_MS, **self.urls
        )

    async def scalar(self, database: str, statement: str) -> Any:
        """The one value that a statement finds in a database, past all code of the console."""
        return next((each for each, *_ in await self.rows(database, statement)), None)

    async def rows(self, database: str, statement: str) -> list[Any]:
        """All rows that a statement finds in a database."""
        engine = create_engine(self.urls[database])
        try:
            async with engine.connect() as connection:
                return list((await connection.execute(text(statement))).all())
        finally:
            await engine.dispose()

    async def change(self, database: str, statement: str) -> None:
        """Changes a database past all code of the application."""
        engine = create_engine(self.urls[database])
        try:
            async with engine.begin() as connection:
                await connection.execute(text(statement))
        finally:
            await engine.dispose()

    async def notes(self) -> list[str]:
        """What the broker's audit has of changes outside of it."""
        entries = await self.admin.audit(500)
        return [one.detail for one in entries if one.action == "note_change"]

    def silences(self) -> list[str]:
        """Alarms that are silent now."""
        return [one.rule for one in self.folder.silences(time.time())]


@asynccontextmanager
async def a_world(folder: Path, receiver: str = "http://127.0.0.1:1/") -> AsyncIterator[World]:
    """Yields a broker with three users, and databases; nothing is in them yet, and no console is there."""
    for name in ("root", "ann", "zoe"):
        add_user(folder / "broker", name, SecretStr(PASSWORD), admin=name == "root")
    file = folder / "password"
    file.write_text(PASSWORD)
    file.chmod(0o600)
    urls = {name: f"sqlite:///{folder}/{name}.db" for name in ("event_store", "read_models")}
    for url in urls.values():
        await upgrade(url)
    watched = AlarmSettings.model_validate(
        {
            "folder": folder / "alarms",
            "target": [{"url": "http://127.0.0.1:1/metrics"}],
            "webhook": [{"name": "duty", "url": receiver}],
        }
    )
    environment = os.environ | {
        "HEADRACE_APP": f"{tea_shop.__name__}:app", "PYTHONPATH": str(ROOT), MENDED: "1",
    }  # fmt: skip
    store = StoreSettings(directory=folder / "broker", segment_bytes=1 << 20)
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(
            Broker(BrokerSettings(store=store, port=0, login=True, transaction_check_ms=3_600_000))
        )
        own = f"tcp://{broker.address}?user=root&password_file={file}"
        admin = await stack.enter_async_context(AdminClient(own, timeout_ms=WAIT_MS))
        producer = await stack.enter_async_context(Producer(own))
        for rule in READER:
            await admin.set_rule("ann", *rule.split(), allows=True)
        await AlarmWatcher(watched).look()
        yield World(
            own, admin, producer, urls, AlarmFolder(watched.folder), AlarmVerbs(watched),
            ApplicationVerbs(app, environment=environment, **urls),
        )  # fmt: skip


@asynccontextmanager
async def consoled(world: World, *, live_ms: int = 1_000) -> AsyncIterator[World]:
    """Yields a world with a console that has every page."""
    settings = ConsoleSettings(port=0, timeout_ms=WAIT_MS, live_ms=live_ms)
    address = world.own.removeprefix("tcp://").partition("?")[0]
    group = Brokers(RecordPlace("postgresql://127.0.0.1:1/record"))
    with mock.patch.object(cluster, "look", look):
        async with serving_console(
            address, settings, world.application, group, world.alarms
        ) as served:
            world.home = f"http://{served.address}"
            yield world


async def sign_in(browser: Any, home: str, user: str) -> Any:
    """A new page of a browser, in which a user has signed in."""
    page = await (await browser.new_context()).new_page()
    page.set_default_timeout(WAIT_MS)
    await page.goto(f"{home}/sign-in")
    await page.locator("input[name=user]").fill(user)
    await page.locator("input[name=password]").fill(PASSWORD)
    await page.keyboard.press("Enter")
    await page.locator("nav").wait_for()
    return page
