"""Principals: what their names and roles are, and how they travel in a header."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.access.principal import PRINCIPAL, Principal, check_role, principal_in
from headrace.errors import SerializationError

PRINTABLE = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=42)
ROLES = st.frozensets(PRINTABLE.filter(lambda text: "," not in text), max_size=5)


@given(name=PRINTABLE, roles=ROLES)
def test_a_principal_comes_back_from_its_header(name: str, roles: frozenset[str]) -> None:
    principal = Principal(name, roles)
    assert principal_in(principal.header) == principal
    assert str(principal) == name


@given(first=PRINTABLE, second=PRINTABLE, key=st.text(max_size=9), other=st.text(max_size=9))
def test_ids_of_two_principals_are_never_the_same(
    first: str, second: str, key: str, other: str
) -> None:
    same = Principal(first).key_prefix + key == Principal(second).key_prefix + other
    assert not same or first == second


def test_headers_without_a_principal_name_none() -> None:
    assert principal_in({"reply-to": "x"}) is None


@pytest.mark.parametrize(
    "text",
    ["", "ann", "{}", '{"name":""}', '{"name":"a b"}', '{"name":"ann","roles":[1]}',
     '{"name":"ann","roles":["a,b"]}', '{"name":1}', '["ann"]'],
)  # fmt: skip
def test_a_header_that_is_no_principal_is_an_error(text: str) -> None:
    with pytest.raises(SerializationError, match="the header 'principal' does not decode"):
        principal_in({PRINCIPAL: text})


@pytest.mark.parametrize("name", ["", "a b", "ä", "a\n", "x" * 128, ":" * 43])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="a principal's name has 1 to 127"):
        Principal(name)


@pytest.mark.parametrize("role", ["", "a b", "a,b", "ä", "x" * 65])
def test_a_role_that_is_none_is_refused(role: str) -> None:
    with pytest.raises(ValueError, match="a role has 1 to 64"):
        check_role(role)
    with pytest.raises(ValueError, match="a role has 1 to 64"):
        Principal("ann", frozenset({role}))


def test_a_principal_has_no_more_roles_than_a_header_should_carry() -> None:
    roles = frozenset(f"role-{number}" for number in range(101))
    with pytest.raises(ValueError, match="at most 100 roles, and ann has 101"):
        Principal("ann", roles)
    assert check_role("orders:write") == "orders:write"
