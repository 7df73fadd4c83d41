import errno
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.broker.groups.backlogs import Limit
from headrace_mq.broker.metadata import limits_file
from headrace_mq.broker.quotas import limits as module
from headrace_mq.broker.quotas.limits import Limits
from headrace_mq.broker.quotas.quotas import QuotaTarget
from headrace_mq.errors import DataCorrupt, InvalidArgument, StoreFull
from headrace_mq.protocol.limits import GroupRules, Rates

HOST, TOPIC = QuotaTarget("client", "10.0.0.7"), QuotaTarget("topic", "t")


def opened(tmp_path: Path) -> Limits:
    limits = Limits(limits_file(tmp_path))
    limits.load()
    return limits


def test_quotas_that_were_set_hold_after_a_restart_and_removed_ones_do_not(tmp_path: Path) -> None:
    limits = opened(tmp_path)
    limits.set_quota(HOST, Rates(1, 2, 3, 4))
    limits.set_quota(TOPIC, Rates(produce_bytes=5))
    limits.set_quota(HOST, None)
    assert opened(tmp_path).quotas == {TOPIC: Rates(produce_bytes=5)}


def test_one_too_many_is_refused_and_the_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LIMITS_MAX", 1)
    limits = opened(tmp_path)
    limits.set_quota(HOST, Rates(1))
    with pytest.raises(InvalidArgument, match="at most 1 limits"):
        limits.set_quota(TOPIC, Rates(1))
    limits.set_quota(HOST, Rates(2))
    assert opened(tmp_path).quotas == limits.quotas == {HOST: Rates(2)}


@pytest.mark.parametrize(("number", "raised"), [(errno.ENOSPC, StoreFull), (errno.EIO, OSError)])
def test_limits_stay_as_they_were_if_the_disk_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, raised: type[Exception]
) -> None:
    limits = opened(tmp_path)

    def refuse(*_: Any) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr("headrace_mq.broker.files.metadata_file.write_checkpoint", refuse)
    with pytest.raises(raised):
        limits.set_quota(HOST, Rates(1))
    assert limits.quotas == {}


def test_a_damaged_file_refuses_the_start_and_says_what_to_do(tmp_path: Path) -> None:
    limits = opened(tmp_path)
    limits.set_quota(HOST, Rates(1))
    file = limits_file(tmp_path).path
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(DataCorrupt, match="have to be set again"):
        opened(tmp_path)


def test_backlog_limits_are_kept_with_the_quotas(tmp_path: Path) -> None:
    limits = opened(tmp_path)
    limits.set_quota(TOPIC, Rates(1))
    limits.set_backlog("g", Limit(5, "block"))
    limits.set_backlog("h", Limit(6, "reject"))
    limits.set_backlog("g", None)
    again = opened(tmp_path)
    assert (again.backlogs, again.quotas) == ({"h": Limit(6, "reject")}, {TOPIC: Rates(1)})


def test_rules_for_a_group_are_kept_until_all_are_removed(tmp_path: Path) -> None:
    limits = opened(tmp_path)
    limits.set_backlog("g", Limit(5, "block"))
    assert limits.rules("g") == GroupRules("g")
    limits.set_group(GroupRules("g", False, 3, 1_700_000_000_000))
    limits.set_group(GroupRules("h", retries=0))
    limits.set_quota(TOPIC, Rates(1))
    again = opened(tmp_path)
    assert again.groups == limits.groups
    assert again.rules("g") == GroupRules("g", False, 3, 1_700_000_000_000)
    assert again.paused == limits.paused == {"g"}
    again.set_group(GroupRules("g", retries=3))
    assert (again.paused, opened(tmp_path).paused) == (set(), set())
    again.set_group(GroupRules("g"))
    assert list(opened(tmp_path).groups) == ["h"]


def test_a_file_of_the_version_before_says_nothing_of_groups(tmp_path: Path) -> None:
    opened(tmp_path).set_quota(TOPIC, Rates(1))
    file = limits_file(tmp_path)
    assert b"groups" not in file.path.read_bytes()
    again = opened(tmp_path)
    assert (again.quotas, again.groups, again.paused) == ({TOPIC: Rates(1)}, {}, set())


def test_groups_are_limits_too_where_these_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LIMITS_MAX", 1)
    limits = opened(tmp_path)
    limits.set_group(GroupRules("g", retries=3))
    with pytest.raises(InvalidArgument, match="at most 1 limits"):
        limits.set_group(GroupRules("h", False, -1, 1))
    assert (list(limits.groups), limits.paused) == (["g"], set())
