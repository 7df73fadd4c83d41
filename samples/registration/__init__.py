"""
Registration: no two users have the same e-mail address, however many ask at the same moment.

Read in this order: `addresses` (an aggregate per address, which is what makes it unique), `users`,
`application` (the process manager between them, the read model, everything bound to one `App`). Why
it is done so: docs/uniqueness.md.
"""

from samples.registration.application import app

__all__ = ["app"]
