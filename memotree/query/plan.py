"""Plans of queries: the chat model says which tools it would call, and nothing is called."""

from typing import Any, Final, Literal

from memotree_storage.model.tokens import truncate_to_tokens
from pydantic import BaseModel, ConfigDict, Field

from memotree.gateways.json_texts import NotJsonError, parsed
from memotree.models import prompts
from memotree.models.chat_requests import Question
from memotree.query.offered_tools import OfferedTools, parameters_of
from memotree.query.prompt import passages
from memotree.v1 import forest_service_pb2 as forest
from memotree.v1 import query_service_pb2 as pb

_PURPOSE_TOKENS: Final = 200
_SHOWN: Final = 60

_STRATEGIES: Final = {
    "DIRECT": pb.QUERY_STRATEGY_DIRECT,
    "SINGLE_TOOL": pb.QUERY_STRATEGY_SINGLE_TOOL,
    "SEQUENTIAL": pb.QUERY_STRATEGY_SEQUENTIAL,
    "PARALLEL": pb.QUERY_STRATEGY_PARALLEL,
    "ITERATIVE": pb.QUERY_STRATEGY_ITERATIVE,
}


class PlannedStep(BaseModel):
    """A step of a plan."""

    model_config = ConfigDict(extra="ignore")

    tool: str
    parameters_json: str = "{}"
    purpose: str = ""


class PlanAnswer(BaseModel):
    """The output of the prompt `query_plan`."""

    model_config = ConfigDict(extra="ignore")

    strategy: Literal["DIRECT", "SINGLE_TOOL", "SEQUENTIAL", "PARALLEL", "ITERATIVE"]
    steps: list[PlannedStep] = Field(default_factory=list)


def plan_question(
    question: str, recalled: forest.RecallResponse, offered: OfferedTools, most_steps: int
) -> Question[PlanAnswer]:
    """The question to the chat model for a plan."""
    data: dict[str, Any] = {
        "question": question,
        "passages": list(passages(recalled)),
        "tools": [
            {"name": tool.name, "description": tool.description, "parameters": parameters_of(tool)}
            for tool in offered.tools.values()
        ],
        "most_steps": most_steps,
    }

    def fault(answer: PlanAnswer) -> str:
        if len(answer.steps) > most_steps:
            return f"it has {len(answer.steps)} steps; plan at most {most_steps}."
        if bool(answer.steps) == (answer.strategy == "DIRECT"):
            return "the strategy is DIRECT if, and only if, there are no steps."
        return next((told for step in answer.steps if (told := _fault(step, offered))), "")

    return Question(prompts.QUERY_PLAN, data, PlanAnswer, fault, answer_tokens=500)


def planned(answer: PlanAnswer) -> pb.PlanQueryResponse:
    """The plan as a message; the strategy of a single step is that of one call, whatever the model calls it."""
    strategy = "SINGLE_TOOL" if len(answer.steps) == 1 else answer.strategy
    return pb.PlanQueryResponse(
        strategy=_STRATEGIES[strategy],
        steps=[
            pb.QueryStep(
                number=number,
                tool=step.tool,
                parameters_json=step.parameters_json.strip() or "{}",
                purpose=truncate_to_tokens(step.purpose, _PURPOSE_TOKENS).encode("utf-8", "replace").decode(),
            )
            for number, step in enumerate(answer.steps, start=1)
        ],
    )


def _fault(step: PlannedStep, offered: OfferedTools) -> str:
    """What is wrong with a step, as a sentence for the model; "" if nothing is."""
    if step.tool not in offered.tools:
        return f"there is no tool {step.tool[:_SHOWN]!r}; name one of input_data, or plan without."
    try:
        found = parsed(step.parameters_json) if step.parameters_json.strip() else {}
    except NotJsonError as error:
        return f"parameters_json of {step.tool} {error}"
    return "" if isinstance(found, dict) else f"parameters_json of {step.tool} must be a JSON object."
