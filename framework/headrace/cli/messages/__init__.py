"""
`headrace message`: single messages and dead letters.

Used by an operator; uses a broker.
"""
