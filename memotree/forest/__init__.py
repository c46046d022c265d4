"""Documents as memory trees: taken in, kept up to date, found again, and asked.

`documents` reads files, `growth` plans trees and compares versions (both pure), `ingestion` makes and updates trees as
jobs, `summaries` keeps summaries up to date, `scoring` tells how well leaves answer (pure), `recall` finds, `asking`
answers, `joining` joins archives. `operations` has the calls of ForestService.
"""
