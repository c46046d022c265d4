"""Documents as memory trees: ingests and updates documents, finds nodes and answers questions.

`operations` has the calls of ForestService. `ingestion` builds and updates trees as jobs, `asking` answers questions,
`joining` joins archives. `recall` finds nodes, `tree_building` builds the tree of a document. `chunking` splits
documents into leaves, `summaries` keeps summaries up to date, `documents` reads files. A package imports only packages
later in this list; import-linter checks it.
"""
