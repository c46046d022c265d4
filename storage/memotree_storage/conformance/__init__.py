"""Test suites that every implementation of a port must pass; subclass a suite and give it a fixture."""
