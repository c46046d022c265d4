"""What requests have in common: names and ids, pages, limits, repeated calls, and the messages of the contract."""
