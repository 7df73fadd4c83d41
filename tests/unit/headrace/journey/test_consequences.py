"""Commands that a process keeps say whether they are sent, due, or refused."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.journey.consequences import add_kept
from headrace.journey.hop import Hop, Journey


def kept(**more: Any) -> Hop:
    row = {
        "process": "parcels", "instance": "ann", "name": "Pack", "aggregate_id": "ann", "command_id": "c-1",
        "due": None, "sent": False, "refused": None,
    }  # fmt: skip
    journey = Journey()
    add_kept(journey, None, SimpleNamespace(**row | more))
    return journey.hops[0]


@pytest.mark.parametrize(
    ("row", "state", "cause", "page"),
    [
        ({}, "waits", "not sent", "/process?name=parcels&key=ann"),
        ({"refused": "no"}, "stopped", "not sent", "/process?name=parcels&key=ann"),
        ({"sent": True}, "waits", "waits its turn", "/trace?command=c-1&aggregate=ann"),
        (
            {"sent": True, "due": datetime(2026, 1, 1, tzinfo=UTC)},
            "waits",
            "not due",
            "/process?name=parcels&key=ann",
        ),
    ],
)
def test_a_kept_command_has_a_state_a_cause_and_a_page(row, state, cause, page) -> None:
    hop = kept(**row)
    assert (hop.name, hop.state, hop.cause, hop.page) == ("Pack to ann", state, cause, page)
