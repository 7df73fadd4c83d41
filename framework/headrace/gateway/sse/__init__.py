"""
Server-Sent Events: answers that stay open and tell each change, as the HTML standard defines them.

Used by the endpoints of rows and results.
"""
