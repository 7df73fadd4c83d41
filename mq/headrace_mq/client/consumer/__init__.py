"""
Consumers: the objects that an application receives messages with.

Used by applications; put together from `fetch`, `group`, `handlers` and `retries`.
"""
