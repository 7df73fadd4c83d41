"""A slice is folded as its gate lets streams pass, however the topic holds them."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import RecordBatch

from headrace.projections.definition.fold import fold_streams
from headrace.spark.executor import slices as slices_module
from headrace.spark.executor.fold import DELETED, MISSING, QUEUE, ROW, TALLY, VERSION
from headrace.spark.executor.gate import StreamGate
from headrace.spark.executor.slices import fold_slices
from headrace.spark.rows import RowCodec

# Which aggregate, which of its versions, and what happens; or whether a rejection stands there instead.
MESSAGES = st.lists(
    st.tuples(
        st.sampled_from("abcde"),
        st.integers(1, 5),
        st.sampled_from(["booked"] * 4 + ["noted", "ended", "passed", "refused"]),
    ),
    min_size=1,
    max_size=30,
)


def folded(plan: Any) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    places = [RecordBatch.from_pydict({"id": [place]}) for place in range(len(plan.slices))]
    for batch in fold_slices(plan, iter(places)):
        for one in batch.to_pylist():
            told = one["data"] if one["kind"] in {ROW, MISSING} else one["number"]
            of_kind = found.setdefault(one["kind"], {})
            if one["kind"] == TALLY:
                told += of_kind.pop(one["key"], 0)
            assert one["key"] not in of_kind
            of_kind[one["key"]] = told
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages=MESSAGES, piece=st.integers(1, 4), held_bytes=st.sampled_from([0, 2_500, 1 << 30]))
def test_any_order_with_anything_twice_is_what_passes_a_gate(
    ledger: Any,
    topic: Any,
    make_plan: Any,
    messages: list[tuple[str, int, str]],
    piece: int,
    held_bytes: int,
) -> None:
    topic.bodies[0].clear()
    streams = []
    for key, version, what in messages:
        event = {
            "booked": ledger.Booked(partner="p", amount=version * len(streams)),
            "noted": ledger.Noted(text=f"{len(streams)}"),
            "ended": ledger.Ended(),
            "passed": ledger.Passed(),
        }.get(what)
        made = ledger.stream(key, version, event) if event else ledger.rejection(key)
        topic.publish(made, queue=0)
        streams += [made] if event else []
    gate = StreamGate({})
    passed = gate.admit(streams) + gate.finish()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(slices_module, "PIECE_MAX", piece)
        # Whether all of it, or what is more than three aggregates, goes to the disk, or nothing does.
        patched.setattr(slices_module, "STATE_BYTES_MAX", held_bytes)
        patched.setattr(slices_module, "_CHECK_BYTES", 1 if held_bytes < 1 << 30 else 1 << 30)
        found = folded(make_plan("accounts", topic.slices()))
    codec = RowCodec(ledger.accounts)
    rows = {key: codec.row(data) for key, data in found.get(ROW, {}).items()}
    rows |= dict.fromkeys(found.get(DELETED, ()))
    assert rows == fold_streams(ledger.accounts, {}, passed)
    assert found.get(VERSION, {}) == gate.versions
    counted = Counter({name: getattr(gate, name) for name in ("events", "duplicates", "gaps")})
    assert found.get(TALLY, {}) == +counted
    assert set(found.get(MISSING, ())) == {each.aggregate_id for each in gate.missing}
    assert found[QUEUE]["ledger.events/0 messages"] == len(streams)
