"""
Consumers: what an application holds, put together from the rooms below.

Sits between: an application that receives, and `fetch`, `group`, `handlers` and `retries`.
"""
