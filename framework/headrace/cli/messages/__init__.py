"""
`headrace message`: single messages and dead letters of a broker.

Used by operators of a broker.
"""
