"""A document becomes trees, or brings its trees up to date: the job, new nodes, and what stays of earlier ones."""
