"""Folders of Markdown: what is kept is written as a tree of files that people read and edit, and read back.

Others import `exporting` and `importing`; everything here but these two works on values and files alone.
"""
