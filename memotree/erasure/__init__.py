"""Erases from the whole history of a workspace: the preview, the job, and what stays of it."""
