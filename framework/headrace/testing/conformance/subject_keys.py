"""
What every store of subjects' keys has to do: subclass it in your tests, and return yours.

    class TestMyKeys(SubjectKeysConformance):
        def make_keys(self) -> SubjectKeys: ...

Used by the tests of the adapters, and by yours; uses the port.
"""

from datetime import UTC, datetime

from headrace.subjects.keys import KEY_BYTES, SubjectKeys

__all__ = ["SubjectKeysConformance"]

_STRANGE = ("a/b", "../c", "ä ü", "c-1 ", "C-1", "x" * 255)


class SubjectKeysConformance:
    """The tests of a key store."""

    def make_keys(self) -> SubjectKeys:
        """Returns a key store, empty at its first call in a test."""
        raise NotImplementedError

    def test_a_subject_has_no_key_at_first(self) -> None:
        """A key is made only where a message is encoded."""
        keys = self.make_keys()
        assert keys.find("c-1") is None
        assert list(keys.subjects()) == []

    def test_a_key_stays_the_same(self) -> None:
        """Otherwise what is stored could not be read."""
        keys = self.make_keys()
        key = keys.make("c-1")
        assert key is not None
        assert len(key) == KEY_BYTES
        assert (keys.make("c-1"), keys.find("c-1")) == (key, key)

    def test_each_subject_has_its_own_key(self) -> None:
        """No matter what its id is made of."""
        keys = self.make_keys()
        made = {keys.make(each) for each in _STRANGE}
        assert len(made) == len(_STRANGE)
        assert [each.subject for each in keys.subjects()] == sorted(_STRANGE)

    def test_a_forgotten_subject_never_gets_a_key_again(self) -> None:
        """A second key would make the first one's values look damaged."""
        keys = self.make_keys()
        keys.make("c-1")
        other = keys.make("c-2")
        assert keys.forget("c-1")
        assert (keys.find("c-1"), keys.make("c-1"), keys.find("c-2")) == (None, None, other)
        assert not keys.forget("c-1")

    def test_a_subject_is_forgotten_before_it_has_a_key(self) -> None:
        """Its first event may be on its way."""
        keys = self.make_keys()
        assert not keys.forget("c-1")
        assert keys.make("c-1") is None

    def test_forgotten_subjects_are_listed_with_their_moment(self) -> None:
        """As a proof for those who asked for it."""
        keys = self.make_keys()
        keys.make("c-2")
        keys.make("c-1")
        began = datetime.now(UTC)
        keys.forget("c-2")
        one, two = keys.subjects()
        assert (one.subject, one.forgotten_at, two.subject) == ("c-1", None, "c-2")
        assert two.forgotten_at is not None
        assert began <= two.forgotten_at <= datetime.now(UTC)
