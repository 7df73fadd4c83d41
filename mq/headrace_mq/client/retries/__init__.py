"""
What happens to a record that fails or is too old: a later attempt, or the dead letters.

Sits between: a handler's failures and the producer that sends the record again.
"""
