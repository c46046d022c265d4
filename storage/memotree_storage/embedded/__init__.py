"""The embedded servers: child processes on a locked data folder. Import the classes that you start."""
