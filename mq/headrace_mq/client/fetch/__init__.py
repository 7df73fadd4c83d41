"""
Receiving: the assigned queues, their fetches, and the records that wait to be handled.

Sits between: consumers and the connections to brokers. Knows no handler.
"""
