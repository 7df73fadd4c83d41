"""An owner's name tells whether its process has ended."""

import os
import subprocess
import sys
from typing import get_args

import pytest

from headrace.rebuild import owner
from headrace.rebuild.owner import Kind, is_gone, kind_of, new_owner


def test_names_are_unique_short_and_of_a_living_process() -> None:
    first, second = new_owner(), new_owner("finished")
    assert first != second
    assert max(len(first), len(second)) <= 64
    assert not is_gone(first)
    assert not is_gone(second)


@pytest.mark.parametrize("kind", get_args(Kind))
def test_a_name_tells_what_a_shadow_is_filled_from(kind: Kind) -> None:
    assert kind_of(new_owner(kind)) == kind


def test_an_owner_whose_process_has_ended_is_gone() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from headrace.rebuild.owner import new_owner; print(new_owner())",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert is_gone(done.stdout.strip())


def test_of_another_machine_nothing_can_be_known(monkeypatch) -> None:  # type: ignore[no-untyped-def]  # pytest's fixture
    name = new_owner()
    monkeypatch.setattr(owner.socket, "gethostname", lambda: "elsewhere")
    assert not is_gone(name)
    assert not is_gone("somebody")
    assert not is_gone(f"elsewhere/{1 << 80}/x")


def test_a_process_of_another_user_is_alive(monkeypatch) -> None:  # type: ignore[no-untyped-def]  # pytest's fixture
    def refuse(pid: int, signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert not is_gone(new_owner())
