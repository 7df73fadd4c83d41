"""
Forgetting a person: declared fields are encrypted with a key per subject, and the key can be destroyed.

Reads top to bottom: `personal` (the declaration) -> `keys` (the port) -> `folder` (keys in files)
-> `cipher` (fields to ciphertext and back) -> `forgotten` (a list that outlives a restore). The
default, keys in a database, is `headrace.stores.subject_keys`.

Used by `domain`, which declares, and by `serialization`, which seals and opens.
"""
