"""
Backlogs of which little is wanted, sifted by processes of their own.

To look through what was stored takes all of a processor. In the broker's own process that would be
time that nobody else is served; so `ahead` has it done for readers that are far behind, by the
`sifters`, each of which runs `process` and is told by `jobs` what to read.

Sits between: `scanning`, which asks, and the segments' files. Whatever a process cannot do, or does
not live to do, the broker does itself.
"""
