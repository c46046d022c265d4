"""What a job may ask of models, and what it has asked."""

from typing import Final

from memotree.jobs import JobContext
from memotree.models.meter import Meter
from memotree.v1 import types_pb2

MAX_MODEL_TOKENS: Final = "max_model_tokens"
"""Where who resumes a job leaves another limit."""


async def meter_of(context: JobContext, max_tokens: int) -> Meter:
    """The meter of one attempt at a job.

    Args:
        context: The job.
        max_tokens: The limit that it was submitted with; 0 is none.
    """
    kept = await context.kept(MAX_MODEL_TOKENS)
    limit = int(kept) if kept else max_tokens
    if not limit:
        return Meter()
    spent = sum(row.prompt_tokens + row.completion_tokens for row in context.earlier_usage)
    return Meter(max_tokens=limit, spent=spent)


def usage_rows(meter: Meter) -> list[types_pb2.ModelUsage]:
    """What was asked of models, as messages of the contract."""
    return [
        types_pb2.ModelUsage(
            kind=used.kind,
            model=used.model,
            calls=used.calls,
            prompt_tokens=used.prompt_tokens,
            completion_tokens=used.completion_tokens,
            cached=used.cached,
        )
        for used in meter.usage
    ]


def note(context: JobContext, meter: Meter) -> None:
    """Tell the job what this attempt has asked of models so far."""
    context.note_usage(usage_rows(meter))
