"""The tools that MemoTree brings along, one module for each subject; `services` lists them."""
