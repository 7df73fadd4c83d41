"""
Scheduled messages: a journal, a timing wheel, and their delivery.

Used by the request handlers; uses the store. Delivers each message once.
"""
