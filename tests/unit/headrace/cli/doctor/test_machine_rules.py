"""What is said of versions, disks, certificates and modes."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.doctor.machine_rules import (
    CertificateFacts,
    DiskFacts,
    FileFacts,
    MachineFacts,
    certificates,
    disk,
    java_major,
    modes,
    versions,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GIB = 1 << 30
GOOD = MachineFacts((3, 12), "1.2.0", "4.3.0", 'openjdk version "17.0.15" 2025-04-15')


def states(machine: MachineFacts, broker: str | None) -> dict[str, str]:
    return {each.name: each.state for each in versions(machine, broker)}


@pytest.mark.parametrize(
    ("changed", "broker", "expected"),
    [
        ({}, "headrace-python 1.2.0", {}),
        ({}, None, {}),
        ({}, "headrace-python", {}),
        ({"headrace": ""}, "headrace-python 1.1.0", {}),
        ({}, "headrace-python 1.1.0", {"headrace": "warning"}),
        ({}, "", {"headrace": "warning"}),
        ({"python": (3, 10)}, None, {"Python": "failed"}),
        ({"java": ""}, None, {"Java": "warning"}),
        ({"java": 'java version "1.8.0_401"'}, None, {"Java": "warning"}),
        ({"java": 'openjdk version "21" 2023'}, None, {}),
        ({"java": "", "pyspark": ""}, None, {}),
    ],
)
def test_versions_that_do_not_fit_are_found(
    changed: dict[str, object], broker: str | None, expected: dict[str, str]
) -> None:
    fine = {"Python": "ok", "Java": "ok", "headrace": "ok"}
    assert states(GOOD._replace(**changed), broker) == fine | expected


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime', 17),
        ('java version "1.8.0_401"', 8),
        ('openjdk version "9-internal"', 9),
        ("The operation couldn't be completed", None),
    ],
)
def test_the_version_of_java_is_its_first_number(text: str, major: int | None) -> None:
    assert java_major(text) == major


@pytest.mark.parametrize(
    ("total", "free", "grows", "full", "state", "said"),
    [
        (100, 50, 1, 100, "ok", "50.0 GiB left, enough for 50 days"),
        (100, 50, 4, 100, "warning", "enough for 12 days at 4.00 GiB a day"),
        (100, 50, 4, 90, "warning", "40.0 GiB left until it is 90 % full, enough for 10 days"),
        (100, 50, 0, 90, "ok", "does not grow"),
        (100, 50, None, 90, "ok", "40.0 GiB left"),
        (100, 9, None, 100, "warning", "less than a tenth"),
        (100, 10, 1, 90, "failed", "it is full: 0.0 GiB left"),
        (100, 0, None, 100, "failed", "it is full"),
    ],
)
def test_a_disk_has_room_for_so_many_days(
    total: int, free: int, grows: int | None, full: int, state: str, said: str
) -> None:
    found = disk(
        DiskFacts("x", total * GIB, free * GIB, None if grows is None else grows * GIB, full)
    )
    assert (found.state, found.name) == (state, "disk of x")
    assert said in found.finding
    assert bool(found.advice) == (state != "ok")


def test_a_disk_that_is_not_known_is_no_warning() -> None:
    assert disk(DiskFacts("x", -1, -1)).state == "ok"


@given(
    free=st.integers(0, 100), grows=st.floats(0.01, 100), days=st.integers(0, 100),
    percent=st.integers(1, 100),
)  # fmt: skip
def test_more_room_is_never_worse(free: int, grows: float, days: int, percent: int) -> None:
    order = ["failed", "warning", "ok"]
    less, more = (
        disk(DiskFacts("x", 100 * GIB, room * GIB, grows * GIB, percent), days)
        for room in (free, min(100, free + 1))
    )
    assert order.index(less.state) <= order.index(more.state)


@pytest.mark.parametrize(
    ("begins", "ends", "state", "said"),
    [
        (-10, 90, "ok", "in 90 days"),
        (-10, 20, "warning", "in 20 days"),
        (-10, -1, "failed", "it ended on 2025-12-31"),
        (1, 90, "failed", "it begins on 2026-01-02"),
    ],
)
def test_a_certificate_is_valid_for_so_many_days(
    begins: int, ends: int, state: str, said: str
) -> None:
    facts = CertificateFacts("c", NOW + timedelta(days=begins), NOW + timedelta(days=ends))
    (found,) = certificates([facts], NOW)
    assert found.state == state
    assert said in found.finding


def test_a_file_without_a_certificate_is_a_failure() -> None:
    (found,) = certificates([CertificateFacts("c", None, None, "there is none")], NOW)
    assert (found.state, found.finding) == ("failed", "there is none")


@pytest.mark.parametrize(
    ("facts", "state", "advice"),
    [
        (FileFacts("f", "/d", 0o700), "ok", ""),
        (FileFacts("f", "/d", 0o755), "warning", "run chmod -R go= /d"),
        (FileFacts("f", "/d", 0o700, others=3), "warning", "run chmod -R go= /d"),
        (FileFacts("f", "/k", 0o600, secret=True), "ok", ""),
        (FileFacts("f", "/k", 0o640, secret=True), "failed", "run chmod 600 /k"),
    ],
)
def test_a_mode_that_lets_others_in_is_found(facts: FileFacts, state: str, advice: str) -> None:
    (found,) = modes([facts])
    assert (found.state, found.name) == (state, "mode of f")
    assert found.advice.startswith(advice)
