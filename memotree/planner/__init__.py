"""Plans: goals, projects, tasks and reviews as nodes with typed attributes, and the tools that change and count them.

They are nodes like all others: staged in sessions, versioned, searched and merged. Import `Planner`, `PlannerTools`
and `declared_tools` from here.
"""

from memotree.planner.planner import Planner
from memotree.planner.tools import PlannerTools, declared_tools

__all__ = ["Planner", "PlannerTools", "declared_tools"]
