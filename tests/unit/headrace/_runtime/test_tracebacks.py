"""Tracebacks to keep: the lines of code, bounded, in a form that every database takes."""

from headrace._runtime.tracebacks import TRACEBACK_CHARACTERS_MAX, storable, traceback_of


def _raise(depth: int, sentence: str) -> None:
    password = "do not tell"  # noqa: F841 - a local variable that must not show
    if depth:
        _raise(depth - 1, sentence)
    raise ValueError(sentence)


def caught(depth: int, sentence: str = "no") -> Exception:
    try:
        _raise(depth, sentence)
    except ValueError as error:
        return error
    raise AssertionError


def test_it_names_files_lines_and_causes_and_no_values() -> None:
    error = RuntimeError("not done")
    error.__cause__ = caught(1)
    text = traceback_of(error)
    assert "ValueError: no" in text
    assert "test_tracebacks.py" in text
    assert "in _raise" in text
    assert text.endswith("RuntimeError: not done\n")
    assert "do not tell" not in text.replace('password = "do not tell"', "")


def test_a_long_one_keeps_its_end() -> None:
    text = traceback_of(caught(0, "x" * TRACEBACK_CHARACTERS_MAX))
    assert len(text) == TRACEBACK_CHARACTERS_MAX
    assert text.endswith("x\n")


def test_what_a_database_cannot_keep_is_replaced() -> None:
    assert storable("a\x00b\ud800c") == "a\N{REPLACEMENT CHARACTER}b?c"
