"""Generated from ``proto/memotree/v1`` by ``make proto``; never edited."""
