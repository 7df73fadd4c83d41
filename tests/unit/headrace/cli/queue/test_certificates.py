"""`headrace certificates make`: what it makes works in both directions, and is for this user alone."""

import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headrace.cli import _command_line
from headrace_mq import AdminClient
from headrace_mq.access.audit import AUDIT_TOPIC
from headrace_mq.broker.server import Broker
from headrace_mq.settings import BrokerSettings, StoreSettings

FILES = ["ca.pem", "client.key", "client.pem", "server.key", "server.pem"]


def make(*arguments: Any) -> Result:
    return CliRunner().invoke(_command_line(), ["certificates", "make", *map(str, arguments)])


@pytest.mark.parametrize("hosts", [[], ["--host", "queue.example", "--host", "127.0.0.2"]])
async def test_a_broker_and_a_client_with_these_files_trust_each_other(
    tmp_path: Path, hosts: list[str]
) -> None:
    folder = tmp_path / "a b" / "tls"
    made = make(folder, *hosts, "--client", "reports")
    assert made.exit_code == 0, made.output
    store = StoreSettings(directory=tmp_path / "data", segment_bytes=1 << 20)
    settings = BrokerSettings(
        store=store,
        port=0,
        host=hosts[-1] if hosts else "127.0.0.1",
        tls_certificate=folder / "server.pem",
        tls_key=folder / "server.key",
        tls_client_ca=folder / "ca.pem",
    )
    async with Broker(settings) as broker:
        address = (
            f"tls://{broker.address}?ca={folder}/ca.pem&certificate={folder}/client.pem"
            f"&key={folder}/client.key"
        )
        async with AdminClient(address.replace(" ", "%20")) as admin:
            assert [one.topic for one in await admin.topics()] == [AUDIT_TOPIC]


def test_the_files_are_for_this_user_alone_and_the_key_of_the_authority_is_gone(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "tls"
    make(folder)
    assert sorted(each.name for each in folder.iterdir()) == FILES
    assert {stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_existing_files_stay(tmp_path: Path) -> None:
    (tmp_path / "server.key").write_text("mine", encoding="utf-8")
    refused = make(tmp_path)
    assert "server.key exists; name another directory" in str(refused.exception)
    assert [each.name for each in tmp_path.iterdir()] == ["server.key"]
    assert (tmp_path / "server.key").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("arguments", [["--host", "ünicode"], ["--client", ""]])
def test_a_name_that_no_certificate_can_have_is_refused(
    tmp_path: Path, arguments: list[str]
) -> None:
    refused = make(tmp_path / "tls", *arguments)
    assert "no certificate can have this name" in str(refused.exception)
    assert not (tmp_path / "tls").exists()


def test_the_output_has_the_options_for_both_sides(tmp_path: Path) -> None:
    output = make(tmp_path).output
    for option in ("--tls-client-ca", "--tls-certificate", "--tls-key", "--tls-ca"):
        assert option in output


def test_the_extra_is_named_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric", None)
    assert "pip install 'headrace[certificates]'" in str(make(tmp_path / "tls").exception)
