"""
What a store needs so that several brokers hold the same log: raw groups, epochs, and a durable cut.

Used by `message_store` and by the owner of a store with replicas; uses `store.log`. It knows no network.
"""
