"""Work in processes of its own, with limits of time and memory, that can be stopped at any moment.

`pool` is the side of the server, `process` the side of the process.
"""
