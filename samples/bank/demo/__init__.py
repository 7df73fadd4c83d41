"""
The bank at work: real processes, a data set, a kill, a Spark rebuild, and a comparison of it all.

Read in this order: `data_set` (CSV files to values), `ledger` (what must come out, by plain
arithmetic), `sending` (values to commands, in order), `processes` (broker and service), `comparing`
(what came out), `summary`, `__main__` (the steps). Used by `make demo`; uses the bank.
"""
