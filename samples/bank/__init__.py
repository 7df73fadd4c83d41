"""
A bank: accounts with deposits and withdrawals, and transfers between them.

Read in this order: `accounts` (an aggregate), `transfers` (an aggregate and the process manager
that carries a transfer through two accounts), `read_models` (projections), `application`
(everything bound to one `App`). Sits between: a person who learns Headrace and Headrace.
"""

from samples.bank.application import app

__all__ = ["app"]
