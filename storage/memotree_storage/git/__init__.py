"""Git: the only truth. Objects, packs, refs and their locks; nothing here knows what a node means.

Import `repository.GitRepository`, `maintenance.maintain`, `maintenance.count_packs`, `refs.check_ref_name` and the
error classes; the rest is this room's own.
"""
