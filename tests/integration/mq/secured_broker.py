"""A broker with a login in this process, and addresses with users in them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from scramp import ScramClient

from headrace_mq import AdminClient
from headrace_mq._net.link import hello_for
from headrace_mq._net.login import credentials_of
from headrace_mq.broker.metadata import users_file
from headrace_mq.broker.server import Broker
from headrace_mq.broker.users.user_book import UserBook
from headrace_mq.errors import ResponseCode
from headrace_mq.protocol.access import SCRAM, Login, LoginAnswer, SetUser
from headrace_mq.protocol.bodies import decode, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import Frame, FrameReader, encode_frame
from headrace_mq.settings import BrokerSettings, StoreSettings
from headrace_mq.testing.embedded import DIRECTORY, SEGMENT_BYTES, memory_disk

__all__ = ["PASSWORD", "QUICK", "Door", "RawClient", "guarded"]

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


class RawClient:
    """A socket that says HELLO, and logs in if a test wants it; then it sends what the test says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self._frames = FrameReader(64 << 20)

    @classmethod
    async def dial(cls, address: str, *, host: str = "127.0.0.1") -> "RawClient":
        """Connects from a host, and says HELLO."""
        where, _, port = address.rpartition(":")
        client = cls(*await asyncio.open_connection(where, int(port), local_addr=(host, 0)))
        answer = await client.ask(RequestCode.HELLO, encode(hello_for("raw")))
        assert answer.code == ResponseCode.OK
        return client

    async def ask(self, code: int, body: bytes) -> Frame:
        """Sends a request and returns the next frame. Raises ConnectionError when the broker closed."""
        self.writer.write(encode_frame(code, 1, body))
        while True:
            data = await self._reader.read(1 << 16)
            if not data:
                raise ConnectionError("the broker closed the connection")
            if found := list(self._frames.feed(data)):
                frame: Frame = found[0]
                return frame._replace(body=memoryview(bytes(frame.body)))

    async def log_in(self, proof: ScramClient) -> int:
        """Logs in; returns the code of the answer."""
        first = Login(SCRAM, proof.get_client_first())
        answer = await self.ask(RequestCode.LOGIN, encode(first))
        if answer.code != ResponseCode.OK:
            return answer.code
        proof.set_server_first(decode(LoginAnswer, answer.body).message)
        final = Login(SCRAM, proof.get_client_final())
        return (await self.ask(RequestCode.LOGIN, encode(final))).code

    async def drained(self) -> None:
        """Reads until the broker closes, or nothing more comes of what was sent."""
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(5):
                self.writer.write_eof()
                while await self._reader.read(1 << 16):
                    pass

    def hang_up(self) -> None:
        """Ends the connection without a farewell."""
        self.writer.transport.abort()
