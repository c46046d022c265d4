"""``python -m memotree.cli`` is the ``memotree`` command."""

from memotree.cli import main

if __name__ == "__main__":
    main()
