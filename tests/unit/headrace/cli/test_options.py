"""Options that several commands share: what is wrong in them is told before anything is done."""

from typing import Any

import pytest
import typer

from headrace.cli.application import run as run_module
from headrace.cli.options import spark_settings, vouching_store
from headrace.gateway.settings import GatewaySettings


@pytest.mark.parametrize("address", ["localhost", ":1", "queue:x", "queue:65536", "http://queue:1"])
def test_a_wrong_address_of_a_broker_is_refused_with_an_example(run: Any, address: str) -> None:
    done = run("topic", "list", "--broker", address)
    assert (done.status, "looks like 127.0.0.1:9876" in done.output) == (2, True)


def test_an_unknown_log_format_is_refused_with_the_known_ones(run: Any) -> None:
    done = run("run", "samples.bank:app", "--log-format", "xml")
    told = " ".join(done.output.replace("│", "").split())
    assert (done.status, "use 'console' or 'json', not 'xml'" in told) == (2, True)


@pytest.mark.parametrize("where", ["8080", "127.0.0.1:x", "127.0.0.1:65536"])
def test_a_wrong_address_for_http_is_refused_with_an_example(run: Any, where: str) -> None:
    done = run("run", "samples.bank:app", "--http", where)
    assert (done.status, "as in 127.0.0.1:8080" in done.output) == (2, True)


def test_a_number_that_no_column_holds_is_refused(run: Any) -> None:
    done = run("stream", "show", "ann", "--app", "samples.bank:app", "--after", str(1 << 63))
    assert (done.status, "--after" in done.output) == (2, True)


@pytest.mark.parametrize("pair", ["spark.x", "x=1", "spark.x="])
def test_a_setting_of_spark_has_a_key_and_a_value(pair: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"use spark\.KEY=VALUE"):
        spark_settings([pair])


def test_events_need_an_event_store_or_the_option_unsealed() -> None:
    assert vouching_store("sqlite:///e.db", unsealed=False) == "sqlite:///e.db"
    assert vouching_store("memory://", unsealed=True) is None
    with pytest.raises(typer.BadParameter, match=r"vouches for no event.*--unsealed"):
        vouching_store("memory://", unsealed=False)


def test_names_of_hosts_and_origins_reach_the_gateway(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[object] = []

    async def serve(_app: object, _settings: object, gateway: object) -> None:
        found.append(gateway)

    monkeypatch.setattr(run_module, "_serve", serve)
    names = "api.example.com, *.shop.example,"
    asked = ("--http", "[::1]:0", "--http-hosts", names, "--http-origins", "https://shop.example")
    assert run("run", "samples.bank:app", *asked).status == 0
    (gateway,) = found
    assert isinstance(gateway, GatewaySettings)
    assert (gateway.host, gateway.hosts) == ("::1", ("api.example.com", "*.shop.example"))
    assert gateway.origins == ("https://shop.example",)
