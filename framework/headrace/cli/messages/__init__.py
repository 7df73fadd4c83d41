"""
`headrace message`: single messages and dead letters.

Sits between: an operator and a broker.
"""
