"""The work of a command service is counted, and timed only where that is asked for."""

from headrace._runtime.work import CommandWork


class Collected:
    """Durations in a list."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def add(self, seconds: float) -> None:
        self.seconds.append(seconds)


def test_durations_are_not_kept_unless_they_are_measured() -> None:
    work = CommandWork()
    work.handled("Open", 1.0)
    assert (work.handlers, work.commits) == (None, None)


def test_handlers_are_measured_by_the_name_of_their_command() -> None:
    work = CommandWork()
    work.measure(Collected)
    for name, seconds in (("Open", 1.0), ("Close", 2.0), ("Open", 3.0)):
        work.handled(name, seconds)
    assert work.handlers is not None
    found = {
        name: each.seconds for name, each in work.handlers.items() if isinstance(each, Collected)
    }
    assert found == {"Open": [1.0, 3.0], "Close": [2.0]}
    assert isinstance(work.commits, Collected)
