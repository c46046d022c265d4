"""Test suites that every implementation of a port passes; subclass one and give it a fixture."""
