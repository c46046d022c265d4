"""Documents as memory trees: ingests and updates documents, finds nodes and answers questions.

`operations` has the calls of ForestService. `ingestion` makes trees of documents and brings them up to date, `asking`
answers questions and `joining` joins archives. `recall` finds what trees say about a question. `tree_building` makes
the tree of a document, `chunking` cuts it into leaves, `documents` reads it (all pure but for the models), and
`summaries` keeps summaries up to date. A room imports only rooms that stand later in this list; import-linter checks
it.
"""
