"""Templates escape all that is put in, and bodies are written for people."""

from headrace.console.html import BODY_SHOWN_MAX, page, pretty, pretty_value


def shown(body: bytes) -> str:
    try:
        return pretty(body.decode(), body)
    except UnicodeDecodeError:
        return pretty(None, body)


def test_json_is_indented_and_keeps_its_letters() -> None:
    assert shown('{"name":"茶"}'.encode()) == '{\n  "name": "茶"\n}'


def test_text_stays_as_it_is() -> None:
    assert shown(b"tea\nmilk") == "tea\nmilk"


def test_bytes_and_control_characters_are_hexadecimal() -> None:
    assert shown(b"\xff\x00tea").endswith("ff 00 74 65 61                                   ..tea")
    assert shown(b"a\x1b[31m").startswith("000000  61 1b 5b")


def test_values_are_indented_and_what_does_not_print_is_escaped() -> None:
    assert pretty_value({"name": "茶"}) == '{\n  "name": "茶"\n}'
    assert pretty_value(["a\u202eb"]) == '[\n  "a\\u202eb"\n]'
    assert len(pretty_value("x" * 100_000)) < BODY_SHOWN_MAX + 10


def test_a_large_body_is_cut() -> None:
    assert len(shown(b"x" * 100_000)) < BODY_SHOWN_MAX + 10
    assert len(shown(b"\xff" * 1_000_000)) < 60_000
    assert shown(b"[" * 50_000).endswith("…")


def test_a_hostile_sentence_is_escaped() -> None:
    context = {
        "sentence": "<script>alert(1)</script>", "title": "<b>", "user": "", "signed_in": False,
        "place": '"><img src=x>', "token": "", "tab": "", "here": "/", "query": {},
    }  # fmt: skip
    text = bytes(page("error.html", context, status=404).body).decode()
    assert "<script>alert" not in text
    assert "<img" not in text
    assert "&lt;script&gt;alert(1)" in text
