"""Documents as memory trees: how they are read, grown into trees, and found again; import the modules of this room."""
