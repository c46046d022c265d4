"""The engine's gRPC server: services, the API key check, errors as statuses, and one method of MemoTree's own."""

import hmac
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import grpc

from memotree_storage.qdrant.engine.collections import CollectionsService, HealthService
from memotree_storage.qdrant.engine.errors import EngineFaultError
from memotree_storage.qdrant.engine.optimising import Optimising
from memotree_storage.qdrant.engine.points import PointsService
from memotree_storage.qdrant.engine.shards import Shards
from memotree_storage.qdrant.engine.wire import qdrant

ENGINE_SERVICE: Final = "memotree.engine.Maintenance"
FLUSH_METHOD: Final = "Flush"
"""Makes everything written so far durable; request and answer are empty. Qdrant's own API has no such call."""

OPTIMISE_METHOD: Final = "Optimise"
"""Optimises every collection now, and answers when that is done; request and answer are empty."""

_MESSAGE_LIMIT: Final = 64 * 1024 * 1024
_WORKERS: Final = 8
"""Every call of the shard holds the GIL, so threads only keep the transport busy; and writes may wait for a copy."""

_BAD_REQUEST: Final = ("dimension error", "Not existing vector name", "Wrong input", "Validation", "Bad request")

_log = logging.getLogger("memotree.engine")


def build(shards: Shards, optimising: Optimising, api_key: str) -> grpc.Server:
    """Create the server, not yet bound to a port."""
    server = grpc.server(
        ThreadPoolExecutor(_WORKERS, thread_name_prefix="engine"),
        interceptors=[_KeyInterceptor(api_key)],
        options=[("grpc.max_receive_message_length", _MESSAGE_LIMIT), ("grpc.max_send_message_length", -1)],
    )
    generated: Any = qdrant  # its functions are not typed
    generated.add_PointsServicer_to_server(PointsService(shards), server)
    generated.add_CollectionsServicer_to_server(CollectionsService(shards), server)
    generated.add_QdrantServicer_to_server(HealthService(), server)

    def optimise(request: bytes, context: grpc.ServicerContext) -> bytes:
        for collection in shards.collections():
            if not optimising.optimise(collection, anew=bool(request)):
                name = collection.settings.collection_name
                context.abort(
                    grpc.StatusCode.FAILED_PRECONDITION, f"{name} was not optimised; the engine's log says why."
                )
        return b""

    def flush(request: bytes, context: grpc.ServicerContext) -> bytes:  # noqa: ARG001 - gRPC's signature
        shards.flush()
        return b""

    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        FLUSH_METHOD: grpc.unary_unary_rpc_method_handler(flush),
        OPTIMISE_METHOD: grpc.unary_unary_rpc_method_handler(optimise),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(ENGINE_SERVICE, handlers),))
    return server


class _KeyInterceptor(grpc.ServerInterceptor):
    """Refuses calls without the API key, and translates exceptions of handlers into statuses."""

    def __init__(self, api_key: str) -> None:
        self._api_key = api_key.encode()

    def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Any], details: grpc.HandlerCallDetails
    ) -> Any:
        given = next((value for name, value in details.invocation_metadata or () if name == "api-key"), "")
        presented = given if isinstance(given, bytes) else given.encode()
        if not hmac.compare_digest(presented, self._api_key):
            return grpc.unary_unary_rpc_method_handler(_refuse)
        handler = continuation(details)
        if handler is None or handler.unary_unary is None:
            return handler
        return grpc.unary_unary_rpc_method_handler(
            _translated(handler.unary_unary),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )


def _refuse(request: bytes, context: grpc.ServicerContext) -> bytes:  # noqa: ARG001 - gRPC's signature
    context.abort(grpc.StatusCode.UNAUTHENTICATED, "The api-key is missing or wrong.")


def _translated(handler: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Wrap a handler so that its exceptions become statuses."""

    def call(request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return handler(request, context)
        except EngineFaultError as fault:
            code, detail = fault.code, str(fault)
        except NotImplementedError:
            code, detail = grpc.StatusCode.UNIMPLEMENTED, "The embedded engine does not implement this method."
        except Exception as error:  # noqa: BLE001 - the shard raises plain exceptions; each becomes a status
            code, detail = _status(error), str(error)
        return context.abort(code, detail)

    return call


def _status(error: Exception) -> grpc.StatusCode:
    """The status for an exception of the shard, whose message alone tells a bad request from a fault of the engine."""
    if isinstance(error, ValueError | OverflowError | TypeError) or any(sign in str(error) for sign in _BAD_REQUEST):
        return grpc.StatusCode.INVALID_ARGUMENT
    _log.error("request failed", exc_info=error)
    return grpc.StatusCode.INTERNAL
