"""
Sending: from one message to acknowledged batches, in order per queue.

Sits between: an application that sends, and the connections to brokers. Knows no consumer.
"""
