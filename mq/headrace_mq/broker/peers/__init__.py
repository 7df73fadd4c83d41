"""
Who is connected, and which producers sent the stored messages.

Used by the request handlers. It knows the clients of connections.
"""
