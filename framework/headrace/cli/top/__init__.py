"""
The rooms of `headrace top`: a live view of a broker.

Used by the command line. `top` asks the broker, `page` says what is shown of the rates of `headrace.figures`, `screen` has
the terminal.
"""
