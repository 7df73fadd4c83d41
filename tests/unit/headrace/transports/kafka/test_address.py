"""Addresses of clusters: what is read of them, what is refused, and that no secret is shown."""

from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.settings import Settings
from headrace.transports.kafka.address import KafkaAddress, is_kafka

HOSTS = st.from_regex(r"[a-z][a-z0-9.-]{0,20}", fullmatch=True)


def test_an_address_has_servers_and_options() -> None:
    address = KafkaAddress.parse(
        "kafka://h1:9092,h2:19092?security.protocol=SASL_SSL&sasl.password=p%26q"
        "&replication=2&min.insync.replicas=1&flush.messages=1&transient.hours=5&replies=bank.replies"
        "&group.protocol=consumer"
    )
    assert address.servers == ("h1:9092", "h2:19092")
    assert address.bootstrap == "h1:9092,h2:19092"
    assert (address.replication, address.min_insync, address.flush_messages) == (2, 1, 1)
    assert (address.transient_hours, address.replies) == (5, "bank.replies")
    assert address.group_protocol == "consumer"
    assert address.client == {"security.protocol": "SASL_SSL", "sasl.password": "p&q"}


def test_a_port_may_be_left_out() -> None:
    assert KafkaAddress.parse("kafka://h1,h2").servers == ("h1:9092", "h2:9092")


@given(st.lists(st.tuples(HOSTS, st.integers(1, 65_535)), min_size=1, max_size=4))
def test_servers_come_as_they_are(servers: list[tuple[str, int]]) -> None:
    text = ",".join(f"{host}:{port}" for host, port in servers)
    assert KafkaAddress.parse(f"kafka://{text}").bootstrap == text


@given(st.text(min_size=1, max_size=30))
def test_no_secret_is_shown(secret: str) -> None:
    # Told apart from what stands in the address anyway.
    secret = f"<{secret}>"
    text = f"kafka://h:9092?sasl.password={quote(secret, safe='')}&replication=3"
    address = KafkaAddress.parse(text)
    assert address.client["sasl.password"] == secret
    for told in (repr(address), str(address), repr(Settings(broker=text))):
        assert secret not in told
        assert quote(secret, safe="") not in told


def test_a_secret_may_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("geheim\n")
    address = KafkaAddress.parse(f"kafka://h?sasl.password.file={file}")
    assert address.client == {"sasl.password": "geheim"}
    with pytest.raises(ValueError, match="No such file"):
        KafkaAddress.parse(f"kafka://h?sasl.password.file={tmp_path / 'none'}")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("h:9092", "begins with kafka://"),
        ("kafka://", "HOST:PORT"),
        ("kafka://h:0", "HOST:PORT"),
        ("kafka://h:70000", "HOST:PORT"),
        ("kafka://:9092", "HOST:PORT"),
        ("kafka://h:9092/topic", "no path"),
        ("kafka://user:geheim@h:9092", r"sasl\.username"),
        ("kafka://h:9092;sasl.password=geheim", "HOST:PORT"),
        ("kafka://h?acks=1", "all in-sync replicas"),
        ("kafka://h?enable.idempotence=false", "must not come twice"),
        ("kafka://h?group.protocol=other", "classic or consumer"),
        ("kafka://h?replication=many", "is a number"),
        ("kafka://h?replication=0", "is a number"),
        ("kafka://h?replication=1&replication=2", "twice"),
    ],
)
def test_what_is_no_address_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as refused:
        KafkaAddress.parse(text)
    assert "geheim" not in str(refused.value)


def test_an_address_of_the_built_in_queue_is_none() -> None:
    assert not is_kafka("h:9092")
    assert not is_kafka(None)
    assert is_kafka("kafka://h")


def test_a_plus_stands_for_itself() -> None:
    assert KafkaAddress.parse("kafka://h?sasl.password=a+b").client == {"sasl.password": "a+b"}
