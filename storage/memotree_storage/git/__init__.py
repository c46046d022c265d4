"""Git: the only truth. Objects, packs, refs and their locks; nothing here knows what a node means."""
