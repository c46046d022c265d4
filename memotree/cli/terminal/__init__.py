"""What the terminal shows: tables, lines, help pages, progress, the pager."""
