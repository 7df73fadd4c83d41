"""
Who is connected, and which producers sent the stored messages.

Sits between: connections and the request handlers.
"""
