"""Documents as memory trees: ingests and updates documents, finds nodes and answers questions.

`documents` reads files and `chunking` splits them (both pure), `tree_building` builds new trees, `ingestion` builds and
updates trees as jobs, `summaries` keeps summaries up to date, `recall` finds nodes, `asking` answers questions,
`joining` joins archives. `operations` has the calls of ForestService.
"""
