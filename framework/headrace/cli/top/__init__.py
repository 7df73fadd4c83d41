"""
The rooms of `headrace top`: a live view of a broker.

Used by the command line. `top` asks the broker; `rates` and `page` are pure: from two looks to rates, and from rates to
what is shown. `screen` has the terminal.
"""
