"""
Backlogs of which little is wanted, sifted by processes of their own.

To look through what was stored takes all of a processor. In the broker's own process that would be
time that no other client is served; so `ahead` has it done for readers that are far behind, by the
`sifters`, each of which runs `process` and says by `jobs` what to read.

They pay by what others are spared: while a group looks for orders in a backlog, messages at 500 a
second arrive after 0.37 instead of 9.6 ms (medians of three turns on two busy cores; the spread is 0.3
to 1.0 and 6.9 to 36.5). How fast the group itself is depends on who else wants the processors.

Used by `scan`; reads the segments' files. What a process cannot do, or does not live to do, the broker
does itself.
"""
