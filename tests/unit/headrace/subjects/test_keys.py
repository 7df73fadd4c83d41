"""Keys in memory, and those that a process keeps."""

from headrace.subjects.keys import KEPT_MAX, KEPT_S, KeptKeys, MemoryKeys
from headrace.testing.conformance.subject_keys import SubjectKeysConformance


class TestMemoryKeys(SubjectKeysConformance):
    def make_keys(self) -> MemoryKeys:
        return MemoryKeys()


def test_a_kept_key_is_used_for_a_while_after_it_was_destroyed():
    keys, now = MemoryKeys(), [0.0]
    kept = KeptKeys(keys, lambda: now[0])
    key = kept.make("c-1")
    keys.forget("c-1")
    now[0] = KEPT_S - 0.1
    assert kept.find("c-1") == key
    now[0] = KEPT_S
    assert kept.find("c-1") is None
    assert kept.make("c-1") is None


def test_a_key_is_made_though_it_was_missing_a_moment_ago():
    kept = KeptKeys(MemoryKeys())
    assert kept.find("c-1") is None
    key = kept.make("c-1")
    assert key is not None
    assert kept.find("c-1") == key


def test_a_process_keeps_so_many_keys():
    kept = KeptKeys(MemoryKeys())
    for number in range(KEPT_MAX + 5):
        kept.make(f"c-{number}")
    assert len(kept._kept) == KEPT_MAX
