"""The audit of the gateway: a line for each refusal, once a minute, and nothing that breaks a line."""

from typing import Any

from structlog.testing import capture_logs

from headrace.access.principal import Principal
from headrace.gateway.access.audit import REFUSALS_MAX, SAME_REFUSAL_MS, AccessAudit
from headrace.testing.history import FakeClock

ANN = Principal("ann")


def scope(path: str = "/results", client: str = "10.0.0.1") -> dict[str, Any]:
    return {"type": "http", "method": "GET", "path": path, "client": (client, 1)}


def test_a_refusal_is_written_with_client_request_address_and_reason() -> None:
    with capture_logs() as logs:
        AccessAudit().refused(scope("/a\nb"), ANN, "no role")
        AccessAudit().refused({"type": "http"}, None, "no token")
    assert logs[0] == {
        "event": "audit",
        "log_level": "warning",
        "user": "ann",
        "action": "GET /a%0Ab",
        "address": "10.0.0.1",
        "outcome": "refused",
        "reason": "no role",
    }
    assert (logs[1]["user"], logs[1]["address"]) == ("", "")


def test_the_same_refusal_is_written_once_a_minute() -> None:
    clock = FakeClock()
    audit = AccessAudit(clock)
    with capture_logs() as logs:
        for _ in range(3):
            audit.refused(scope(), ANN, "no role")
        audit.refused(scope(), ANN, "may not send Withdraw")
        audit.refused(scope(client="10.0.0.2"), ANN, "no role")
        clock.advance(SAME_REFUSAL_MS)
        audit.refused(scope(), ANN, "no role")
    assert len(logs) == 4


def test_many_addresses_fill_no_memory() -> None:
    audit = AccessAudit(FakeClock())
    with capture_logs() as logs:
        for number in range(REFUSALS_MAX + 5):
            audit.refused(scope(client=str(number)), None, "no token")
    assert len(logs) == REFUSALS_MAX + 5
    assert len(audit._written) == 5
