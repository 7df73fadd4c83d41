"""
Scheduled messages: a journal, a timing wheel, and their delivery.

Sits between: the request handlers and the store. Delivers each message once.
"""
