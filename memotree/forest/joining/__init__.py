"""Archives that are about the same: suggested, and joined under a new root."""
