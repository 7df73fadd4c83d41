"""
Conditions in SQL92 over a message's headers, key and tag, for consumers that want some messages.

Reads top to bottom: `filter` (the text, compiled) -> `grammar` (the parser) -> `conditions`
(three-valued logic over columns) -> `likeness` (patterns) -> `tokens` (the words and their places).

Used by consumers, and by the broker, which filters for them. Pure.
"""
