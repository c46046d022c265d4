"""Finds what the trees of a state say about a question; `recalling.Recalling` is the way in."""
