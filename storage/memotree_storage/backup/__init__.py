"""Makes backups of a store that is in use, and restores them into a data folder that no server uses.

What a backup file holds is in `memotree_storage.git.backup_file`; import the two modules of this room.
"""
