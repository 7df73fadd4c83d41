"""The command that runs many seeds says what it ran, and which seed broke a promise."""

import sys
from types import ModuleType

import pytest

from headrace_mq.testing.cluster import (
    asynchronous_cluster,
    operated_cluster,
    simulated_cluster,
)
from headrace_mq.testing.cluster.many_seeds import main
from headrace_mq.testing.cluster.promises import BrokenPromise


@pytest.mark.parametrize("module", [simulated_cluster, operated_cluster, asynchronous_cluster])
def test_the_command_says_what_it_ran_and_what_broke(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    group = module.__name__.rpartition(".")[2].removesuffix("_cluster")
    monkeypatch.setattr(
        sys, "argv", ["many_seeds", "--seeds", "2", "--first", "7", "--group", group]
    )
    assert main() == 0
    assert "'runs': 2" in capsys.readouterr().out

    def broken(seed: int, **_: bool) -> None:
        raise BrokenPromise(f"of {seed}")

    monkeypatch.setattr(module, "run", broken)
    assert main() == 1
    assert capsys.readouterr().out == "seed 7: of 7\n"
