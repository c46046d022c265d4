"""What is typed after a command: options, names of nodes and revisions, times, texts; and their completion."""
