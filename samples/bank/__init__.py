"""
A bank: accounts with deposits and withdrawals, and transfers between them.

Read in this order: `accounts` (an aggregate), `transfers` (an aggregate and the process manager
that carries a transfer through two accounts), `read_models` (projections), `application`
(everything bound to one `App`). Written for a person who learns Headrace.
"""

from samples.bank.application import app

__all__ = ["app"]
