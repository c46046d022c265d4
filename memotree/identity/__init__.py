"""Who may call: API keys, roles, and the check of every call before its operation."""
