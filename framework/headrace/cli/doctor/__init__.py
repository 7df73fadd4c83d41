"""
The rooms of `headrace doctor`: what it looks at, and what it says of it.

Used by the command line. Modules whose names end in `look` ask brokers, databases and files; those whose names end
in `rules` are pure: from facts to findings.
"""
