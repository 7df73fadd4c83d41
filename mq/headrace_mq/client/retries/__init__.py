"""
What happens to a record that fails or is too old: a later attempt, or the dead letters.

Used by `RetryingConsumer` and applications; the policies answer failures of `handlers`.
"""
