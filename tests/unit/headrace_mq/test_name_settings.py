"""What name servers, and brokers that register, can be told."""

from pathlib import Path
from typing import Any

import pytest

from headrace_mq.name_settings import NAME_SERVER_PORT, NameServerSettings, NamesSettings
from headrace_mq.settings import BrokerSettings, StoreSettings


def test_a_name_server_listens_to_this_machine_alone_by_default() -> None:
    assert (NameServerSettings().host, NameServerSettings().port) == ("127.0.0.1", NAME_SERVER_PORT)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"host": "0.0.0.0"}, "other machines reach"),
        ({"host": "10.0.0.1", "tls_certificate": Path("c"), "tls_key": Path("k")}, "login=true"),
        ({"tls_key": Path("k")}, "go together"),
        ({"tls_client_ca": Path("ca")}, "tls_client_ca needs"),
        ({"login": True}, "login and data go together"),
        ({"data": Path("d")}, "login and data go together"),
        ({"port": 65_536}, "port must be"),
        ({"metrics": "10.0.0.1:1"}, "serve them on 127.0.0.1"),
        ({"registrations_max": 0}, "registrations_max must be at least 1"),
        ({"not_ready_ms": -1}, "not_ready_ms"),
        ({"vanished_ms_max": 1}, "vanished_ms_max"),
    ],
)
def test_settings_of_a_name_server_that_make_no_sense_are_refused(
    wrong: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        NameServerSettings(**wrong)


def test_other_machines_reach_a_name_server_with_certificates_or_where_the_network_is_safe() -> (
    None
):
    files = {"tls_certificate": Path("c"), "tls_key": Path("k")}
    assert NameServerSettings(host="10.0.0.1", tls_client_ca=Path("ca"), **files).tls_client_ca
    assert NameServerSettings(host="10.0.0.1", login=True, data=Path("d"), **files).login
    assert NameServerSettings(host="10.0.0.1", insecure=True).insecure


@pytest.mark.parametrize(
    "wrong", [{"servers": ""}, {"servers": "a:1", "cluster": ""}, {"servers": 1}]
)
def test_settings_of_a_registration_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"name|wrong type"):
        NamesSettings(**wrong)


def test_a_broker_that_listens_everywhere_says_where_clients_reach_it(tmp_path: Path) -> None:
    common: dict[str, Any] = {
        "store": StoreSettings(directory=tmp_path), "host": "0.0.0.0", "insecure": True,
    }  # fmt: skip
    with pytest.raises(ValueError, match="--advertise HOST:PORT"):
        BrokerSettings(names=NamesSettings(servers="ns:1"), **common)
    names = NamesSettings(servers="ns:1", advertise="q:1")
    assert BrokerSettings(names=names, **common).names == names
