"""Reads paged lists as one iterator."""

from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

from google.protobuf.message import Message

from memotree.client.transport import Transport

T = TypeVar("T")
PageT = TypeVar("PageT", bound=Message)


async def pages(
    transport: Transport, request: Message, answer: type[PageT], read: Callable[[PageT], Iterable[T]]
) -> AsyncIterator[T]:
    """All items of a list, page by page; the next page is fetched when its first item is requested."""
    token = ""
    while True:
        turned = type(request)()
        turned.CopyFrom(request)
        turned.page_token = token  # type: ignore[attr-defined] # every list of the contract has one
        page = await transport.call(turned, answer)
        for item in read(page):
            yield item
        token = page.next_page_token  # type: ignore[attr-defined] # likewise
        if not token:
            return
