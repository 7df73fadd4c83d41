"""What every client of a cluster is given."""

import pytest

from headrace.errors import DefinitionError
from headrace.transports.kafka.address import KafkaAddress
from headrace.transports.kafka.client import client_config, reading, reading_config


def test_options_of_the_address_reach_the_client() -> None:
    address = KafkaAddress.parse("kafka://h1:1,h2:2?security.protocol=SSL&ssl.ca.location=ca.pem")
    config = client_config(address, "me")
    assert config["bootstrap.servers"] == "h1:1,h2:2"
    assert (config["security.protocol"], config["ssl.ca.location"]) == ("SSL", "ca.pem")
    assert config["client.id"] == "me"


def test_a_reader_commits_nothing_by_itself() -> None:
    config = reading_config(KafkaAddress.parse("kafka://h"), "me")
    assert config["enable.auto.commit"] is False
    assert config["enable.auto.offset.store"] is False
    assert config["auto.offset.reset"] == "earliest"


def test_an_option_that_the_client_does_not_take_is_named_without_its_value() -> None:
    address = KafkaAddress.parse("kafka://h?sasl.pasword=geheim")
    with pytest.raises(DefinitionError, match=r"sasl\.pasword") as refused, reading(address, "me"):
        pass
    assert "geheim" not in str(refused.value)
