"""How a failure is answered over HTTP."""

from typing import Any

from starlette.responses import JSONResponse, Response

from memotree.error_statuses import HTTP_STATUSES
from memotree.gateways.results import Failure


def refused(failure: Failure, status: int | None = None) -> Response:
    """The JSON response of a failure, with the HTTP status of its gRPC status."""
    document: dict[str, Any] = {"code": failure.code, "status": failure.status, "message": failure.message}
    if failure.details:
        document |= {"details": failure.details}
    return JSONResponse({"error": document}, status_code=status or HTTP_STATUSES.get(failure.status, 500))
