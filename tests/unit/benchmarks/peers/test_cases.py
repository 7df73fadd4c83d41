"""Which cases a command line asks for."""

from benchmarks.peers.cases import BODIES, CASES, chosen


def test_all_cases_are_chosen_without_a_word_each_in_its_own_sizes() -> None:
    found = chosen([], "", None)
    assert len(found) == sum(len(case.bodies) for case in CASES)
    assert {body for _, body in found} == set(BODIES)


def test_sizes_that_are_asked_for_hold_for_every_case() -> None:
    assert [body for _, body in chosen(["W4"], "", [7, 8])] == [7, 8]


def test_a_word_and_a_workload_narrow_the_choice() -> None:
    found = {(case.workload, case.name) for case, _ in chosen(["W1", "W2"], "32 at", None)}
    assert found == {
        ("W1", "send_many of 100, 32 at a time"),
        ("W2", "4 x send_many of 100, 32 at a time"),
    }
