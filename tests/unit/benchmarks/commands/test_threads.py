"""Callers that are threads."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.commands.threads import pay_in_by_threads


def test_every_thread_pays_in_within_its_context_and_each_payment_is_timed() -> None:
    paid: list[str] = []
    passed: list[str] = []
    met = threading.Barrier(3)

    @contextmanager
    def context() -> Iterator[None]:
        # Only where three run at once does it let any of them go on.
        met.wait(20)
        passed.append("in")
        yield
        passed.append("out")

    def pay_in(account: str, transaction_id: str, amount: int) -> None:
        paid.append(account)

    took = pay_in_by_threads(pay_in, ["a", "b"], 3, 0.01, context=context)
    assert len(took) == len(paid) >= 3
    assert set(paid) <= {"a", "b"}
    assert sorted(passed) == ["in"] * 3 + ["out"] * 3
