"""The write path: everything that makes a commit or moves a ref goes through this package."""
