"""
What a broker tells of itself, as people and programs read it: one set of questions for every view.

    questions   which of them may be refused     sample   one look at a broker
    rates       what happened between two looks  topics   topics with what they hold
    records     messages                         words    times, sizes and names

Used by the command line and the console, so that both show the same figures; uses `AdminClient`, with requests that only
read.
"""
