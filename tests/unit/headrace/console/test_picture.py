"""A picture has a box for each hop in the column of where it happens, and a line from the one that it follows."""

from headrace.console.picture import picture_of, took_words
from headrace.journey.hop import LANES, Journey


def test_a_picture_has_a_row_for_each_hop_and_a_column_for_each_place() -> None:
    journey = Journey()
    sent = journey.add(None, "sender", "sent", "a", at_ms=1_000)
    queued = journey.add(sent, "queue", "queued", "x" * 60, at_ms=1_004)
    journey.add(queued, "queue", "retried", "b\n")
    journey.add(queued, "sender", "commanded", "c")
    drawn = picture_of(journey.plain())
    first, second, third, fourth = drawn.boxes
    assert (first.x, second.x, third.x) == (10, 200, 200)
    assert [one.y for one in drawn.boxes] == [34, 96, 158, 220]
    assert drawn.height >= fourth.y + drawn.box_height
    assert drawn.lines == ["M95 80V119H200", "M285 142V158", "M285 142V243H180"]
    assert (second.name, third.name, second.took) == ("x" * 20 + "…", "'b\\n'", "+4 ms")
    assert [lane for lane, _ in drawn.lanes] == list(LANES)


def test_a_picture_of_nothing_has_its_columns_alone() -> None:
    drawn = picture_of([])
    assert (drawn.boxes, drawn.lines) == ([], [])


def test_what_a_hop_took_is_said_in_a_unit_that_fits() -> None:
    assert [took_words(each) for each in (None, 0, -3, 999, 12_345)] == ["", "+0 ms", "-3 ms", "+999 ms", "+12.3 s"]  # fmt: skip
