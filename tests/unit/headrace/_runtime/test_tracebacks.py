"""A traceback begins in the user's code, ends with the error, and tells no values."""

import pytest

from headrace._runtime import tracebacks as subject
from headrace._runtime.backoff import Backoff
from headrace._runtime.tracebacks import storable, traceback_of
from headrace.serialization import decode_result


async def fail(password: str) -> None:
    {}[len(password)]


async def test_a_traceback_begins_with_the_first_call_outside_the_framework():
    with pytest.raises(KeyError) as raised:
        await Backoff(ms_min=1, ms_max=1).persist(
            lambda: fail("hunter2"), what="x", unless=(KeyError,)
        )
    outer = raised.value.with_traceback(raised.value.__traceback__.tb_next)
    lines = traceback_of(outer).splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "test_tracebacks.py" in lines[1]
    assert lines[1].endswith("in fail")
    assert lines[-1] == "KeyError: 7"
    assert "hunter2" not in traceback_of(outer)


async def test_what_caused_an_error_is_told_with_it():
    try:
        try:
            await fail("")
        except KeyError as error:
            raise ValueError("no such thing") from error
    except ValueError as error:
        text = traceback_of(error)
    assert text.index("KeyError: 0") < text.index("direct cause") < text.index("no such thing")


def test_an_error_that_only_our_own_calls_led_to_is_shown_whole():
    with pytest.raises(Exception, match="truncated") as raised:
        decode_result("{")
    inner = raised.value.with_traceback(raised.value.__traceback__.tb_next)
    assert "decode_result" in traceback_of(inner)


def test_an_error_that_was_never_raised_has_its_name():
    assert traceback_of(ValueError("x")) == "ValueError: x"


def test_of_a_long_one_the_end_is_kept(monkeypatch):
    monkeypatch.setattr(subject, "TRACEBACK_CHARACTERS_MAX", 20)
    text = traceback_of(ValueError("a" * 100 + "the end"))
    assert text.startswith("… 99 characters …\n")
    assert text.endswith("athe end")
    assert len(text.splitlines()[1]) == 20


def test_what_a_database_cannot_keep_is_replaced() -> None:
    assert storable("a\x00b\ud800c") == "a\N{REPLACEMENT CHARACTER}b?c"
