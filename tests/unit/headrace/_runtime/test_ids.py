"""Ids: ordered and unique, or derived and repeatable."""

import uuid

from headrace._runtime.ids import derived_id, new_id


def test_new_ids_are_version_seven_and_never_repeat():
    ids = [new_id() for _ in range(1_000)]
    assert len(set(ids)) == 1_000
    assert {uuid.UUID(each).version for each in ids} == {7}


def test_the_same_parts_derive_the_same_id_for_ever():
    # The literal is what earlier versions derived: stored command ids depend on it.
    assert derived_id("transfers", "a-1", "c-1", "0") == derived_id("transfers", "a-1", "c-1", "0")
    assert derived_id("transfers", "a-1", "c-1", "0") == "7fbcb83f-af7a-50d1-a567-97c2f484bde6"


def test_other_parts_or_another_division_of_them_derive_another_id():
    ids = {derived_id("a", "b"), derived_id("ab"), derived_id("a", "b", ""), derived_id("b", "a")}
    assert len(ids) == 4
