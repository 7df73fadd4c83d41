"""
One plain function per request: decode, decide, answer.

A handler takes the broker's state, the connection and the frame. It returns the parts of an answer
with code OK, or None where the answer comes later, and raises a `BrokerError` to refuse.

Used by `dispatcher`, which calls them; uses `state`, which they read and change. They never wait: what must
wait is left with `acknowledgements` or `long_poll`.
"""
