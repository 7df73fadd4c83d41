"""
What a broker of a group gives clients that only read, while another one leads.

Used by `replicated_broker`; uses the store of a replica, and the documents on its disk.
"""
