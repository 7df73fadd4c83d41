"""The console on a socket: where it listens, and where it refuses to."""

import httpx
import pytest

from headrace.console.server import serving_console
from headrace.console.settings import ConsoleSettings
from headrace.errors import HeadraceError


async def test_a_console_answers_on_a_socket(broker: str) -> None:
    settings = ConsoleSettings(port=0)
    async with serving_console(broker, settings) as served, httpx.AsyncClient() as client:
        answer = await client.get(f"{served.scheme}://{served.address}/")
    assert (answer.status_code, "Overview" in answer.text) == (200, True)


async def test_other_machines_need_tls(broker: str) -> None:
    with pytest.raises(HeadraceError, match="read passwords and messages"):
        async with serving_console(broker, ConsoleSettings(host="0.0.0.0", port=0)):
            pass


async def test_an_insecure_console_says_so_itself(broker: str) -> None:
    settings = ConsoleSettings(host="0.0.0.0", port=0, insecure=True)
    async with serving_console(broker, settings) as served:
        assert served.address.startswith("0.0.0.0:")


async def test_tls_for_other_machines_needs_a_broker_with_a_login(
    broker: str, guarded: str, authority, tmp_path
) -> None:
    certificate, key = authority.issue(tmp_path, "127.0.0.1")
    settings = ConsoleSettings(host="0.0.0.0", port=0, certificate=certificate, key=key)
    with pytest.raises(HeadraceError, match="asks for no login"):
        async with serving_console(broker, settings):
            pass
    async with serving_console(guarded, settings) as served:
        assert served.scheme == "https"
    with pytest.raises(HeadraceError, match="must know whether the broker asks"):
        async with serving_console("127.0.0.1:1", settings.model_copy(update={"timeout_ms": 50})):
            pass
