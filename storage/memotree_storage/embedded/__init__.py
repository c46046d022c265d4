"""The servers that MemoTree brings along: child processes on a locked data folder; import the classes you start."""
