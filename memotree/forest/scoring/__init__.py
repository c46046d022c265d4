"""How well leaves answer a question, at every scale at once; pure numpy, import `grove`, `scores` and `packing`."""
