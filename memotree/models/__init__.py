"""The models that MemoTree brings along: embeddings and summaries that need no key and no network."""
