"""How a failure is answered over HTTP."""

import math
from typing import Any

from starlette.responses import JSONResponse, Response

from memotree.error_statuses import HTTP_STATUSES
from memotree.gateways.results import Failure


def refused(failure: Failure, status: int | None = None) -> Response:
    """The JSON response of a failure, with the HTTP status of its gRPC status."""
    document: dict[str, Any] = {"code": failure.code, "status": failure.status, "message": failure.message}
    if failure.details:
        document |= {"details": failure.details}
    return JSONResponse(
        {"error": document},
        status_code=status or HTTP_STATUSES.get(failure.status, 500),
        headers=retry_headers(failure),
    )


def retry_headers(failure: Failure | None) -> dict[str, str]:
    """The header that says in how many seconds the same call may be sent again; none without such advice."""
    after = None if failure is None else failure.details.get("retry_after")
    return {} if after is None else {"retry-after": str(math.ceil(after))}


def gone() -> Response:
    """The response for a client that has gone away, which nobody reads."""
    return Response(status_code=HTTP_STATUSES["CANCELLED"])
