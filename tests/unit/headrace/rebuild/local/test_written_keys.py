"""A key that was written is always known; of others few are taken for one."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.rebuild.local.written_keys import WrittenKeys

KEYS = st.sets(st.text(max_size=5), max_size=200)


@given(written=KEYS, others=KEYS, bits=st.sampled_from([1, 8, 1 << 10, 1 << 20]))
def test_no_written_key_is_forgotten(written: set[str], others: set[str], bits: int) -> None:
    keys = WrittenKeys(bits)
    assert keys.among(written | others) == set()
    keys.add(written)
    keys.add(sorted(written))
    assert written <= keys.among(written | others)


def test_few_others_are_taken_for_written_ones() -> None:
    keys = WrittenKeys(1 << 20)
    keys.add(f"a-{number}" for number in range(50_000))
    assert keys.among(f"a-{number}" for number in range(50_000)) == {
        f"a-{number}" for number in range(50_000)
    }
    # A tenth of the bits is set at most, and two of them are looked at.
    assert len(keys.among(f"b-{number}" for number in range(50_000))) < 1_000
