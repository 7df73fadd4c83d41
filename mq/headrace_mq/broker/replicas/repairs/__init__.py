"""
What a broker of a group does about damage on its disk: it finds it, and gets sound bytes from another one.

Used by `broker.replicas` and `replicated_broker`.
"""
