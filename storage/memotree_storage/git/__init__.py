"""Git, the source of truth: objects, packs, refs and their locks. This room knows nothing about nodes.

Import `repository.GitRepository`, `maintenance.maintain`, `maintenance.count_packs`, `refs.check_ref_name` and the
error classes; everything else is private to the room.
"""
