import inspect

from headrace_mq.testing.conformance.queue import QueueConformance


def test_no_part_of_the_suite_hides_a_test_of_another_one() -> None:
    parts = QueueConformance.__bases__
    names = [name for part in parts for name in vars(part) if name.startswith("test_")]
    assert len(names) == len(set(names)) > 15


def test_every_promise_is_a_sentence_and_needs_no_more_than_a_deployment() -> None:
    for name, test in inspect.getmembers(QueueConformance, inspect.isfunction):
        assert test.__doc__, name
        assert set(inspect.signature(test).parameters) <= {"self", "deployment", "tmp_path"}
