"""Ingests a document as a job: builds its trees, or updates them and keeps the nodes whose text is unchanged."""
