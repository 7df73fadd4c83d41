"""`headrace quota` as an operator meets it, against a broker in a process of its own."""

import pytest
import typer

from headrace.cli.queue.quota import default_rates


def test_a_quota_is_set_listed_and_removed(run, topic) -> None:
    done = run("quota", "set", "topic", topic, "produce=10MiB", "fetch-messages=5000")
    told = "produce 10,485,760 bytes, fetch-messages 5,000"
    assert done.rows == [[f"topic {topic}: {told}"]]
    assert ["topic", topic, told] in run("quota", "list").rows
    (one,) = [q for q in run("quota", "list", "--json").json["quotas"] if q["name"] == topic]
    assert one["rates"] == {
        "produce_bytes": 10 << 20, "produce_messages": 0, "fetch_bytes": 0, "fetch_messages": 5_000,
    }  # fmt: skip
    assert run("quota", "remove", "topic", topic).rows == [[f"topic {topic}: no limit"]]
    assert topic not in run("quota", "list").output


@pytest.mark.parametrize(
    "wrong",
    [
        ("planet", "produce=1KiB"),
        ("topic", "speed=1KiB"),
        ("topic", "produce=fast"),
        ("topic", "produce=0"),
        ("topic", "fetch-messages=1KiB"),
    ],
)
def test_a_wrong_quota_is_refused_with_an_example(run, topic, wrong) -> None:
    kind, rate = wrong
    done = run("quota", "set", kind, topic, rate)
    assert done.status == 2
    assert topic not in run("quota", "list").output


def test_the_options_of_a_broker_become_its_settings() -> None:
    assert default_rates(client=["produce=1KiB"], topic=["fetch-messages=7", "fetch=2KiB"]) == {
        "client_produce_bytes": 1_024, "topic_fetch_messages": 7, "topic_fetch_bytes": 2_048,
    }  # fmt: skip
    assert default_rates(client=None, topic=None) == {}
    with pytest.raises(typer.BadParameter, match="lets nothing through"):
        default_rates(client=["fetch-messages=0"], topic=None)
