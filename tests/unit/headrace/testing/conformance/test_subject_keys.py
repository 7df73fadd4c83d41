"""The conformance suite of key stores finds stores that break their promises."""

import secrets
from collections.abc import Callable

import pytest

from headrace.subjects.keys import KEY_BYTES, MemoryKeys, Subject, SubjectKeys
from headrace.testing.conformance.subject_keys import SubjectKeysConformance

Suite = SubjectKeysConformance


class Reviving(MemoryKeys):
    def make(self, subject: str) -> bytes | None:
        return super().make(subject) or secrets.token_bytes(KEY_BYTES)


class Changing(MemoryKeys):
    def make(self, subject: str) -> bytes | None:
        return secrets.token_bytes(KEY_BYTES)


class Silent(MemoryKeys):
    def subjects(self) -> list[Subject]:
        return []


def suite_of(kind: Callable[[], SubjectKeys]) -> SubjectKeysConformance:
    class Tested(SubjectKeysConformance):
        def make_keys(self) -> SubjectKeys:
            return kind()

    return Tested()


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (Reviving, Suite.test_a_forgotten_subject_never_gets_a_key_again),
        (Reviving, Suite.test_a_subject_is_forgotten_before_it_has_a_key),
        (Changing, Suite.test_a_key_stays_the_same),
        (Silent, Suite.test_each_subject_has_its_own_key),
        (Silent, Suite.test_forgotten_subjects_are_listed_with_their_moment),
    ],
)
def test_a_broken_key_store_is_found(
    kind: type[MemoryKeys], found: Callable[[SubjectKeysConformance], None]
) -> None:
    found(suite_of(MemoryKeys))
    with pytest.raises((AssertionError, ValueError)):
        found(suite_of(kind))
