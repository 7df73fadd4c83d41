"""The words of declared folds are at one door."""

from headrace import folds
from headrace.projections.definition import expressions as terms
from headrace.projections.definition import summaries


def test_every_word_is_the_one_that_projections_understand() -> None:
    for name in ("count", "sum_", "first", "last", "min_", "max_"):
        assert getattr(folds, name) is getattr(summaries, name)
    for name in ("field", "literal", "day", "Term"):
        assert getattr(folds, name) is getattr(terms, name)
