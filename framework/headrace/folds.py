"""
The functions for declared folds: `from headrace.folds import count, sum_`, for `Projection.on`.

    balances.on(Deposited, balance=sum_("amount"), deposits=count())
    balances.on(Withdrawn, balance=sum_(-field("amount")), where=field("amount") > 0)

Used by applications; the functions come from `projections.definition`.
"""

from headrace.projections.definition.expressions import Term, day, field, literal
from headrace.projections.definition.keys import KeyOf
from headrace.projections.definition.summaries import Summary, count, first, last, max_, min_, sum_

__all__ = [
    "KeyOf",
    "Summary",
    "Term",
    "count",
    "day",
    "field",
    "first",
    "last",
    "literal",
    "max_",
    "min_",
    "sum_",
]
