"""An entry of the audit as a message carries it."""

import pytest

from headrace_mq.access.audit import AuditEntry
from headrace_mq.errors import DataCorrupt


def test_an_entry_is_json_that_any_consumer_can_read() -> None:
    entry = AuditEntry(
        at_ms=7, user="ann", action="create_topic", resource="topic:t", outcome="done"
    )
    body = entry.encode()
    assert body == (
        b'{"at_ms":7,"user":"ann","action":"create_topic","resource":"topic:t","outcome":"done"}'
    )
    assert AuditEntry.decode(body) == entry


def test_an_entry_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    body = b'{"at_ms":7,"action":"login","outcome":"done","place":"Berlin"}'
    assert AuditEntry.decode(body) == AuditEntry(at_ms=7, action="login", outcome="done")


@pytest.mark.parametrize("body", [b"", b"no json", b"[]", b'{"at_ms":"x"}'])
def test_a_message_that_is_no_entry_is_an_error_with_a_reason(body: bytes) -> None:
    with pytest.raises(DataCorrupt, match="no entry of the audit"):
        AuditEntry.decode(body)


def test_an_entry_is_about_those_that_did_it_and_those_it_was_done_to() -> None:
    entry = AuditEntry(at_ms=7, user="root", action="set_user", resource="user:ann", outcome="done")
    assert [entry.is_about(name) for name in ("root", "ann", "bob", "user:ann")] == [
        True, True, False, False,
    ]  # fmt: skip
