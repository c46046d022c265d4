"""Field-by-field differences between two versions of an entry, used by sessions and history."""

from memotree_storage.model.node import Archive, Entry, Node
from memotree_storage.model.provenance import without_provenance


def fields_changed(before: Entry | None, after: Entry | None) -> list[str]:
    """Return the names of the fields in which two versions of an entry differ, in file order.

    Where a summary comes from changes with the summary or the content, so it counts only if nothing else changed.
    """
    if before is None or after is None:
        return []
    if isinstance(before, Archive) and isinstance(after, Archive):
        fields = {"name": "name", "model": "model_id", "attributes": "attributes", "description": "description"}
        return [name for name, field in fields.items() if getattr(before, field) != getattr(after, field)]
    if isinstance(before, Node) and isinstance(after, Node):
        names = ("type", "title", "brief", "summary", "tags", "attributes", "relations", "source", "content")
        changed = [name for name in names if getattr(before, name) != getattr(after, name)]
        only_records = without_provenance(before.attributes) == without_provenance(after.attributes)
        if only_records and "attributes" in changed and len(changed) > 1:
            changed.remove("attributes")
        if (before.archive_id, before.parent_id) != (after.archive_id, after.parent_id):
            changed.append("parent")
        elif before.position != after.position:
            changed.append("position")
        return changed
    return ["kind"]
