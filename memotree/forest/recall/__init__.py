"""Finds the nodes of a state that answer a question; import `recall.Recall`."""
