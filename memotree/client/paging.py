"""Reads paged lists as one iterator."""

from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

from google.protobuf.message import Message

from memotree.client.transport import Transport

T = TypeVar("T")
PageT = TypeVar("PageT", bound=Message)


async def pages(
    transport: Transport,
    request: Message,
    answer: type[PageT],
    read: Callable[[PageT], Iterable[T]],
    *,
    sizes: tuple[int, int] | None = None,
) -> AsyncIterator[T]:
    """All items of a list, page by page; the next page is fetched when its first item is requested.

    ``sizes`` are those of the first page and of the others, in place of the one in the request.
    """
    token = ""
    while True:
        turned = type(request)()
        turned.CopyFrom(request)
        turned.page_token = token  # type: ignore[attr-defined] # every list of the contract has one
        if sizes is not None:
            turned.page_size = sizes[1 if token else 0]  # type: ignore[attr-defined] # likewise
        page = await transport.call(turned, answer)
        for item in read(page):
            yield item
        token = page.next_page_token  # type: ignore[attr-defined] # likewise
        if not token:
            return
