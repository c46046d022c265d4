"""Servers that a program starts for itself on this machine. Import ``open`` and ``open_async``, and ``server_process``.

``opening`` gives a program the server of a folder, ``users`` decides when that server ends, ``child`` is the program
that runs as the server, and ``server_process`` starts and stops any server in a process of its own.
"""
