"""An owner's name tells what its shadow is filled from, and whether it holds a lock."""

from typing import get_args

import pytest

from headrace.rebuild import owner
from headrace.rebuild.owner import Kind, has_lock, kind_of, new_owner


def test_names_are_unique_and_fit_into_their_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner.socket, "gethostname", lambda: "host:" * 20)
    monkeypatch.setattr(owner.os, "getpid", lambda: 1 << 22)
    first, second = new_owner(), new_owner("finished")
    assert first != second
    assert max(len(first), len(second)) <= 64


@pytest.mark.parametrize("kind", get_args(Kind))
def test_a_name_tells_what_a_shadow_is_filled_from(kind: Kind) -> None:
    assert kind_of(new_owner(kind)) == kind
    assert has_lock(new_owner(kind))


def test_names_of_versions_that_held_no_lock_are_known() -> None:
    assert (kind_of("vm/1/91e45886a921/store"), has_lock("vm/1/91e45886a921/store")) == (
        "store",
        False,
    )
    assert kind_of("vm/1/91e45886a921") == "topic"
