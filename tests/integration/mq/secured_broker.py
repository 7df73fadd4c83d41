"""A broker with a login in this process, and addresses with users in them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from headrace_mq import AdminClient
from headrace_mq._net.login import credentials_of
from headrace_mq.broker.metadata import users_file
from headrace_mq.broker.server import Broker
from headrace_mq.broker.users.user_book import UserBook
from headrace_mq.protocol.access import SetUser
from headrace_mq.settings import BrokerSettings, StoreSettings
from headrace_mq.testing.embedded import DIRECTORY, SEGMENT_BYTES, memory_disk

__all__ = ["PASSWORD", "QUICK", "Door", "guarded"]

PASSWORD = "a long pencil"
QUICK = {"reconnect_ms_min": 1, "reconnect_ms_max": 1}


@asynccontextmanager
async def guarded(
    disk: Any = None, *, stored: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Broker]:
    """Runs a broker with the administrator `root`; `stored` are settings of its store."""
    disk = disk or memory_disk()
    files = disk.mount()
    book = UserBook(users_file(DIRECTORY, files))
    book.load()
    if not book.has_admin:
        book.change(SetUser("add", "root", [credentials_of(SecretStr(PASSWORD))], admin=1))
    kept = {"segment_bytes": SEGMENT_BYTES, "compact_segment_bytes": SEGMENT_BYTES}
    store = StoreSettings(directory=DIRECTORY, **(kept | (stored or {})))
    running = Broker(
        BrokerSettings(store=store, port=0, login=True, **settings), disk=disk, files=files
    )
    async with running:
        yield running


class Door:
    """Addresses of a broker with users in them."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder, self.broker = folder, broker

    def of(self, user: str, password: str = PASSWORD) -> str:
        file = self.folder / f"{len(list(self.folder.iterdir()))}.txt"
        file.write_text(f"{password}\n")
        file.chmod(0o600)
        return f"tcp://{self.broker.address}?user={user}&password_file={file}"

    async def add(self, name: str, *rules: str) -> str:
        async with AdminClient(self.of("root")) as admin:
            await admin.add_user(name, SecretStr(PASSWORD))
            for rule in rules:
                action, resource = rule.split()
                await admin.set_rule(name, action, resource, allows=True)
        return self.of(name)
