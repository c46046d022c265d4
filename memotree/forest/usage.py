"""Connects a job with its meter: the limit of model tokens, and the usage so far."""

from typing import Final

from memotree.jobs import JobContext
from memotree.models.meter import Meter
from memotree.v1 import types_pb2

MAX_MODEL_TOKENS: Final = "max_model_tokens"
"""The key under which ResumeJob stores a new limit for a job."""


async def meter_of(context: JobContext, max_tokens: int) -> Meter:
    """Returns the meter for one attempt at a job; the tokens of earlier attempts count against its limit.

    Args:
        context: The context of the job.
        max_tokens: The limit that the job was submitted with; 0 for no limit.
    """
    kept = await context.kept(MAX_MODEL_TOKENS)
    limit = int(kept) if kept else max_tokens
    if not limit:
        return Meter()
    spent = sum(row.prompt_tokens + row.completion_tokens for row in context.earlier_usage)
    return Meter(max_tokens=limit, spent=spent)


def usage_rows(meter: Meter) -> list[types_pb2.ModelUsage]:
    """Returns the usage of models that a meter has counted, as protobuf messages."""
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
    """Updates the job with the usage of models in this attempt so far."""
    context.note_usage(usage_rows(meter))
