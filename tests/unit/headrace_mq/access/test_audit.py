"""An entry of the audit as a message carries it."""

from pathlib import Path

import msgspec
import pytest

from headrace_mq.access.audit import AUDIT_TOPIC, KINDS, REFUSALS, TEXT_BYTES_MAX, AuditEntry, cut
from headrace_mq.errors import DataCorrupt
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.settings import BrokerSettings, StoreSettings

# Of one entry in the store.
ENTRY_BYTES_MAX = 2_048
SECURITY = Path(__file__).parents[4] / "docs" / "security.md"


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


@pytest.mark.parametrize("one", ["x", "é", "\U0001f600", "\x01", '"', "a\x01\U0001f600é"])
def test_a_text_is_cut_by_the_bytes_that_it_takes_in_an_entry(one: str) -> None:
    def size(text: str) -> int:
        return len(msgspec.json.encode(text)) - 2

    fitting = one * (TEXT_BYTES_MAX // size(one))
    assert cut(fitting) == fitting
    for text in (fitting + one, fitting + one * 9_000):
        short = cut(text)
        assert short.endswith("…")
        assert text.startswith(short[:-1])
        assert TEXT_BYTES_MAX - size(one) - 3 < size(short) <= TEXT_BYTES_MAX
    assert cut("") == ""


@pytest.mark.parametrize("one", ["x", "\U0001f600", "\x01"])
def test_an_entry_has_a_bound_in_the_store_and_the_page_says_what_all_of_them_take(
    one: str,
) -> None:
    text = cut(one * 9_000)
    entry = AuditEntry(
        at_ms=10**13, user=text, action="describe_transactions", resource=text,
        address=f"[{'ffff:' * 7}ffff%interface0]:65535", outcome="left out", detail=text, more=10**12,
    )  # fmt: skip
    kept_max = BrokerSettings(store=StoreSettings(directory=Path("data"))).audit_entries_max
    columns = Columns([str(kept_max)], [], [], [entry.encode()], [])
    batch = encode_batch(QueueRef(AUDIT_TOPIC, REFUSALS), columns, born_first_ms=10**13)
    assert len(batch) < ENTRY_BYTES_MAX
    mebibytes = -(-len(KINDS) * kept_max * ENTRY_BYTES_MAX >> 20)
    assert f"at most {mebibytes} MiB" in SECURITY.read_text()
