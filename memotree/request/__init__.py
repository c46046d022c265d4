"""Code that all operations share: names and ids, pages, limits, repeated calls, and the messages of the contract."""
