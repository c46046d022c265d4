"""Takes a node, a document or a text out of the whole history of a workspace, and out of everything made from it."""
