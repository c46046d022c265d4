"""What recall keeps of a commit, saved in files, so that the first recall after a start need not read everything."""
