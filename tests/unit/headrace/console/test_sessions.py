"""Sessions begin with a password that the broker takes, and end by themselves."""

import asyncio

import pytest

from headrace.console.problems import Mistake
from headrace.console.sessions import Sessions
from headrace.console.settings import ConsoleSettings
from headrace.errors import HeadraceError
from headrace_mq._net.address import BrokerAddress
from headrace_mq.errors import ConnectionLost, LoginFailed, RequestTimeout


class Clock:
    """Seconds that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def sessions(address: str, clock: Clock | None = None, **limits: int) -> Sessions:
    settings = ConsoleSettings.model_validate(limits)
    return Sessions(BrokerAddress.parse(address), settings, clock or Clock())


async def test_a_broker_without_a_login_has_one_session_for_all(broker: str) -> None:
    async with sessions(broker) as opened:
        assert not await opened.asks_login()
        first, second = await opened.find("a"), await opened.find("b")
        assert first is not None
        assert first is second
        assert first.user == ""


async def test_a_user_asks_the_broker_with_its_own_permissions(guarded: str) -> None:
    async with sessions(guarded) as opened:
        assert await opened.find("unknown") is None
        name = await opened.open("root", "secret of root")
        session = await opened.find(name)
        assert session is not None
        assert [one.name for one in await session.admin.users()] == ["ann", "root"]


async def test_a_wrong_password_opens_nothing_and_is_not_kept(guarded: str) -> None:
    async with sessions(guarded) as opened:
        with pytest.raises(LoginFailed):
            await opened.open("root", "wrong")
        with pytest.raises(LoginFailed, match="write your name"):
            await opened.open("", "x")
        with pytest.raises(LoginFailed, match="write your name"):
            await opened.open("root", "x" * 2_000)
        folder = opened._folder
        assert folder is not None
        assert list(folder.iterdir()) == []


async def test_a_session_ends_when_it_is_idle_or_old(guarded: str) -> None:
    clock = Clock()
    async with sessions(guarded, clock, idle_ms=10_000, session_ms=15_000) as opened:
        name = await opened.open("root", "secret of root")
        clock.now = 9
        assert await opened.find(name)
        clock.now = 14
        assert await opened.find(name)
        clock.now = 16
        assert await opened.find(name) is None
        name = await opened.open("root", "secret of root")
        clock.now = 27
        assert await opened.find(name) is None


async def test_a_session_with_a_change_under_way_is_not_idle_and_ends_it(guarded: str) -> None:
    clock = Clock()
    async with sessions(guarded, clock, idle_ms=10_000, session_ms=50_000) as opened:
        name = await opened.open("ann", "secret of ann")
        session = await opened.find(name)
        assert session is not None
        change = asyncio.create_task(asyncio.Event().wait())
        session.hold(change)
        clock.now = 30
        assert await opened.still(session)
        await opened.end(name)
        await asyncio.wait({change})
        assert change.cancelled()
        assert not session.busy


async def test_a_session_is_idle_from_the_end_of_its_change_on(guarded: str) -> None:
    clock = Clock()
    async with sessions(guarded, clock, idle_ms=10_000) as opened:
        session = await opened.find(await opened.open("ann", "secret of ann"))
        assert session is not None
        change = asyncio.create_task(asyncio.sleep(0))
        session.hold(change)
        clock.now = 30
        assert await opened.still(session)
        await change
        await asyncio.sleep(0)
        clock.now = 39
        assert await opened.still(session)
        clock.now = 41
        assert not await opened.still(session)


async def test_a_session_that_has_ended_leaves_no_password(guarded: str) -> None:
    async with sessions(guarded) as opened:
        folder = opened._folder
        assert folder is not None
        assert folder.stat().st_mode & 0o777 == 0o700
        name = await opened.open("ann", "secret of ann")
        (file,) = folder.iterdir()
        assert file.stat().st_mode & 0o777 == 0o600
        await opened.end(name)
        assert list(folder.iterdir()) == []
        await opened.open("ann", "secret of ann")
    assert not folder.exists()


async def test_passwords_of_a_console_that_was_killed_go_when_the_next_one_starts(
    guarded: str,
) -> None:
    async with sessions(guarded) as opened:
        folder = opened._folder
        assert folder is not None
        # More than Linux gives to any process.
        left = folder.with_name("headrace-console-99999999-x")
        left.mkdir(mode=0o700)
        (left / "password").write_text("secret")
        async with sessions(guarded):
            assert not left.exists()
            assert folder.exists()


async def test_asking_whether_a_session_stands_does_not_make_it_last(guarded: str) -> None:
    clock = Clock()
    async with sessions(guarded, clock, idle_ms=10_000) as opened:
        session = await opened.find(await opened.open("ann", "secret of ann"))
        assert session is not None
        clock.now = 9
        assert await opened.still(session)
        clock.now = 11
        assert not await opened.still(session)


async def test_a_sentence_does_not_name_the_file_of_a_password(guarded: str) -> None:
    async with sessions(guarded, timeout_ms=2_000) as opened:
        session = await opened.find(await opened.open("ann", "secret of ann"))
        assert session is not None
        address = session.admin._link.address
        assert "password_file" in address
        shown = await opened.failed(
            session, RequestTimeout(f"no answer from {address} within 5 ms")
        )
        assert str(shown) == f"no answer from {guarded} within 5 ms"


async def test_no_kind_of_error_names_the_file_of_a_password(guarded: str) -> None:
    async with sessions("nameserver://ns1:9875/default") as opened:
        file = "/dev/shm/headrace-console-1-x/abc"
        for scheme in ("nameserver", "nameserver+tls", "tcp", "tls"):
            address = f"{scheme}://ns1:9875/default?user=ann&password_file={file}"
            assert file not in opened.plain(f"cannot reach {address}: refused")
            assert opened.plain(f"cannot reach {address}: refused").endswith(": refused")
    async with sessions(guarded) as opened:
        session = await opened.find(await opened.open("ann", "secret of ann"))
        assert session is not None
        address = session.admin._link.address
        for error in (RequestTimeout, ConnectionLost, HeadraceError):
            with pytest.raises(error) as raised:
                async with opened.asking(session):
                    raise error(f"no answer from {address}")
            assert str(raised.value) == f"no answer from {guarded}"
        with pytest.raises(Mistake) as mistaken:
            async with opened.asking(session):
                raise ValueError(address)
        assert "password_file" not in str(mistaken.value)


async def test_no_more_people_sign_in_than_the_limit_allows(guarded: str) -> None:
    async with sessions(guarded, sessions_max=1) as opened:
        await opened.open("ann", "secret of ann")
        with pytest.raises(LoginFailed, match="sessions_max"):
            await opened.open("root", "secret of root")


async def test_a_broker_that_is_away_is_an_error_of_the_queue() -> None:
    async with sessions("127.0.0.1:1", timeout_ms=50) as opened:
        with pytest.raises(ConnectionLost, match="check that it is running"):
            await opened.find("x")
