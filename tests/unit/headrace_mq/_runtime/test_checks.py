"""Values that a program constructs are checked like those that are decoded."""

from typing import Literal

import msgspec
import pytest

from headrace_mq._runtime.checks import (
    is_loopback,
    place_of,
    require,
    require_near,
    require_pauses,
    require_secure,
    require_types,
)


class Some(msgspec.Struct):
    word: Literal["one", "two"] | int = "one"
    count: int = 0


def test_a_condition_that_holds_says_nothing() -> None:
    require(True, "never")
    with pytest.raises(ValueError, match="because"):
        require(False, "because")


@pytest.mark.parametrize("value", ["one", "two", 3])
def test_values_that_the_type_allows_are_accepted(value: object) -> None:
    require_types(Some(word=value))  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize(
    ("some", "sentence"),
    [
        (Some(word="three"), "word must be 'one' or 'two' or a number, not 'three'"),  # type: ignore[arg-type]  # that is the point
        (Some(count="4"), "count is '4', which has the wrong type"),  # type: ignore[arg-type]  # that is the point
        (Some(count=True), "count is True, which has the wrong type"),
    ],
)
def test_another_value_is_refused_by_the_name_of_its_field(some: Some, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        require_types(some)


def test_pauses_grow() -> None:
    require_pauses("p_ms", 1, 1)
    for first, longest in [(0, 5), (6, 5)]:
        with pytest.raises(ValueError, match="p_ms_min must be at least 1"):
            require_pauses("p_ms", first, longest)


@pytest.mark.parametrize(
    ("host", "alone"),
    [
        ("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("localhost", True),
        ("0.0.0.0", False), ("::", False), ("192.0.2.1", False), ("broker.example", False),
    ],
)  # fmt: skip
def test_addresses_that_other_machines_reach_are_known(host: str, alone: bool) -> None:
    assert is_loopback(host) == alone


@pytest.mark.parametrize(
    ("host", "secured", "known", "insecure", "lacks"),
    [
        ("127.0.0.1", False, False, False, ""), ("0.0.0.0", True, True, False, ""),
        ("0.0.0.0", False, False, True, ""), ("0.0.0.0", True, False, True, ""),
        ("0.0.0.0", False, False, False, "--tls-certificate"),
        ("broker.example", False, True, False, "--tls-certificate"),
        ("broker.example", True, False, False, "--login"),
    ],
)  # fmt: skip
def test_an_address_of_other_machines_needs_tls_and_a_login_or_to_be_called_insecure(
    host: str, secured: bool, known: bool, insecure: bool, lacks: str
) -> None:
    if not lacks:
        require_secure(host, secured=secured, known=known, insecure=insecure)
    else:
        with pytest.raises(ValueError, match=f"reach {host}.*{lacks}.*--insecure"):
            require_secure(host, secured=secured, known=known, insecure=insecure)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("127.0.0.1:9464", ("127.0.0.1", 9464)),
        ("[::1]:0", ("::1", 0)),
        ("localhost:1", ("localhost", 1)),
    ],
)
def test_a_place_is_a_host_and_a_port(text: str, place: tuple[str, int]) -> None:
    assert place_of(text) == place


@pytest.mark.parametrize(
    "text", ["", "9464", ":9464", "localhost", "localhost:x", "localhost:65536"]
)
def test_other_texts_are_no_place(text: str) -> None:
    with pytest.raises(ValueError, match=r"HOST:PORT for metrics, as in 127\.0\.0\.1:9464"):
        place_of(text)


@pytest.mark.parametrize("text", ["0.0.0.0:1", "[::]:1", "example.com:1"])
def test_metrics_for_other_machines_need_a_word(text: str) -> None:
    require_near(text, insecure=True)
    with pytest.raises(ValueError, match=r"could read the metrics: .*--insecure"):
        require_near(text, insecure=False)
    require_near("127.0.0.1:1", insecure=False)
