"""PostgreSQL: the mirror of the tree, the working state, and the embedded server."""
