"""
The words of declared folds: `from headrace.folds import count, sum_`, for `Projection.on`.

    balances.on(Deposited, balance=sum_("amount"), deposits=count())
    balances.on(Withdrawn, balance=sum_(-field("amount")), where=field("amount") > 0)

Sits between: user code and `_projecting`, where they live.
"""

from headrace._projecting.keys import KeyOf
from headrace._projecting.summaries import Summary, count, first, last, max_, min_, sum_
from headrace._projecting.terms import Term, day, field, literal

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
