"""Background maintenance: expired sessions, repacking, and lines that no ref reaches."""
