"""A key has one text, which gives its values back, and is ordered by them."""

from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import DefinitionError
from headrace.projections.definition.key_form import KEY_FIELDS_MAX, KeyForm
from headrace.projections.definition.shape import ColumnKind, RowField

INTEGERS = st.integers(-(2**63), 2**63 - 1)
VALUES = {
    ColumnKind.TEXT: st.text(max_size=12) | st.text("%,2C5", max_size=8),
    ColumnKind.INTEGER: INTEGERS,
    ColumnKind.UUID: st.uuids(),
}


def form_of(*kinds: ColumnKind) -> KeyForm:
    fields = [RowField(name=f"f{at}", kind=kind, optional=False) for at, kind in enumerate(kinds)]
    return KeyForm("p", fields)


@st.composite
def forms_and_keys(draw: st.DrawFn) -> tuple[KeyForm, list[Any]]:
    kinds = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4))
    keys = st.tuples(*(VALUES[kind] for kind in kinds))
    some = draw(st.lists(keys, min_size=2, max_size=2))
    return form_of(*kinds), [key if len(kinds) > 1 else key[0] for key in some]


@given(forms_and_keys())
def test_each_key_has_one_text_and_each_text_one_key(found: tuple[KeyForm, list[Any]]) -> None:
    form, (one, other) = found
    text = form.text(one)
    assert form.value(text) == one
    assert form.parse(text) == text
    assert (text == form.text(other)) == (one == other)


@given(st.text(max_size=20), st.sampled_from([(ColumnKind.TEXT, ColumnKind.INTEGER), *(
    (kind,) for kind in VALUES
)]))  # fmt: skip
def test_a_text_that_a_person_writes_is_a_key_or_refused(text: str, kinds: Any) -> None:
    form = form_of(*kinds)
    canonical = None
    with suppress(ValueError):
        canonical = form.parse(text)
    if canonical is None:
        with pytest.raises(ValueError, match="is no key; write"):
            form.parse(text)
    else:
        assert form.text(form.value(canonical)) == canonical


@pytest.mark.parametrize(
    ("kinds", "written", "text"),
    [
        ((ColumnKind.INTEGER,), "007", "7"),
        ((ColumnKind.UUID,), "1B4E28BA2FA111D2883F0016D3CCA427", "1b4e28ba-2fa1-11d2-883f-0016d3cca427"),
        ((ColumnKind.TEXT, ColumnKind.INTEGER), "a%2cb,+1", None),
        ((ColumnKind.TEXT, ColumnKind.TEXT), "a,b%", "a,b%25"),
    ],
)  # fmt: skip
def test_another_way_to_write_a_key_is_the_same_key(
    kinds: Any, written: str, text: str | None
) -> None:
    form = form_of(*kinds)
    if text is None:
        # A small c is no comma: it is a % that was not written as %25.
        text = "a%252cb,1"
    assert form.parse(written) == text
    with pytest.raises(ValueError, match="is not how the key"):
        form.values(written)


@pytest.mark.parametrize(
    "fields",
    [
        [],
        [RowField(name="f", kind=ColumnKind.FLOAT, optional=False)],
        [RowField(name="f", kind=ColumnKind.TEXT, optional=True)],
        [RowField(name="f", kind=ColumnKind.TEXT, optional=False, choices=frozenset("a"))],
        [
            RowField(name=f"f{at}", kind=ColumnKind.TEXT, optional=False)
            for at in range(KEY_FIELDS_MAX + 1)
        ],
    ],
)
def test_fields_that_make_no_key_are_refused(fields: list[RowField]) -> None:
    with pytest.raises(DefinitionError, match="projection p: "):
        KeyForm("p", fields)


def test_a_row_has_the_text_of_its_key() -> None:
    class Row:
        def __init__(self) -> None:
            self.f0, self.f1 = "a,b", UUID(int=1)

    form = form_of(ColumnKind.TEXT, ColumnKind.UUID)
    assert form.text_of(Row()) == f"a%2Cb,{UUID(int=1)}"
    assert form.named(form.text_of(Row())) == f"f0='a,b', f1={UUID(int=1)!r}"
