"""`headrace topic copy`: what it refuses before it copies anything; what it does: integration/kafka."""

from pathlib import Path
from typing import Any

import pytest

APP = ("--app", "samples.bank:app")


@pytest.mark.parametrize(
    ("addresses", "says"),
    [
        (("127.0.0.1:1", "127.0.0.1:1"), "use two addresses"),
        (("127.0.0.1:1", "kafka://h:1?acks=1"), "acks cannot be set"),
        (("kafka://", "127.0.0.1:1"), "write kafka://HOST:PORT"),
    ],
)
def test_addresses_that_do_not_fit_are_refused(
    run: Any, addresses: tuple[str, str], says: str
) -> None:
    done = run("topic", "copy", *addresses, *APP)
    assert (done.status, says in done.output) == (2, True), done


def test_a_source_that_is_away_ends_with_a_sentence(run: Any, tmp_path: Path) -> None:
    read_models = ("--read-models", f"sqlite:///{tmp_path / 'read.db'}")
    done = run("topic", "copy", "127.0.0.1:1", "127.0.0.1:2", *APP, *read_models)
    assert done.status != 0, done
    assert "127.0.0.1:1" in f"{done.output}{done}"
