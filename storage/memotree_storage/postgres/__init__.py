"""PostgreSQL: the mirror of the tree (schema ``mirror``) and the working state (schema ``work``)."""
