"""
What brokers tell name servers, and what clients ask them.

Used by the name server, by brokers and by clients. Pure.
"""
