"""Questions with tools, at one revision of a workspace: the chat model answers, and calls tools meanwhile."""

from collections.abc import AsyncIterator, Iterable
from datetime import datetime

from memotree.client.forest import filtered
from memotree.client.lists import several
from memotree.client.node_values import ArchiveRef, NodeRef
from memotree.client.query_values import QueryAnswer, QueryConversation, QueryEvent, QueryPlan, event_of
from memotree.client.transport import Transport
from memotree.v1 import query_service_pb2 as wire


class AsyncQueries:
    """Asks the chat model of the server, which may call tools."""

    _transport: Transport
    _workspace: str
    _revision: str

    async def query(
        self,
        query: str,
        *,
        tools_enabled: bool = True,
        allowed_tools: Iterable[str] = (),
        max_tool_calls: int = 0,
        max_model_tokens: int = 0,
        max_answer_tokens: int = 0,
        timeout_seconds: float = 0.0,
        temperature: float | None = None,
        token_budget: int = 0,
        conversation_id: str = "",
        agent: str = "",
        archives: Iterable[ArchiveRef] = (),
        model_id: str = "",
        tags: Iterable[str] = (),
        node_types: Iterable[str] = (),
        since: datetime | str = "",
        until: datetime | str = "",
        under: NodeRef | None = None,
        valid_at: datetime | str = "",
        include_outdated: bool = False,
    ) -> QueryAnswer:
        """Answers a question with tools that the chat model calls, as you. It may take as long as a streaming call.

        Args:
            query: The question, at most 8192 characters.
            tools_enabled: Whether the model may call tools.
            allowed_tools: The only tools that it may call. Tools that change something, reach other machines or files,
                or ask the model themselves must be named here; if empty, those that it is offered without.
            max_tool_calls: The most calls of tools; 5 if 0, at most 20.
            max_model_tokens: The most tokens that the chat model may read and write; no limit if 0.
            max_answer_tokens: The most tokens of one text of the model; its own limit if 0.
            timeout_seconds: After how many seconds the query ends with what it has; 120 if 0, at most 600.
            temperature: How freely the model chooses its words, from 0 to 2; 0 if ``None``.
            token_budget: The most tokens of passages that the model gets with the question; 2000 if 0.
            conversation_id: A name of your choice: the model gets the earlier turns of that conversation, and this one
                is kept. Nobody else reads it.
            agent: Who asks, for tools that have an agent; your agent if empty.
            archives: Recall considers only these archives.
            model_id: Only archives of this model.
            tags: Only nodes with all of these tags.
            node_types: Only nodes of one of these types.
            since: Only nodes from this time or later.
            until: Only nodes from before this time.
            under: Only this node and the nodes below it.
            valid_at: Only nodes that hold at this time; without it, those that do not hold any more are left out.
            include_outdated: Whether to consider nodes that do not hold, too.
        """
        request = wire.QueryRequest(
            workspace=self._workspace,
            revision=self._revision,
            query=query,
            filter=filtered(archives, model_id, tags, node_types, since, until, under, valid_at, include_outdated),
            options=wire.QueryOptions(
                tools_enabled=tools_enabled,
                allowed_tools=several("allowed_tools", allowed_tools),
                max_tool_calls=max_tool_calls,
                max_model_tokens=max_model_tokens,
                max_answer_tokens=max_answer_tokens,
                timeout_seconds=timeout_seconds,
                temperature=temperature,
                token_budget=token_budget,
            ),
            conversation_id=conversation_id,
            agent=agent,
        )
        return QueryAnswer.from_wire(await self._transport.call(request, wire.QueryResponse, waits=True))

    async def stream_query(
        self,
        query: str,
        *,
        tools_enabled: bool = True,
        allowed_tools: Iterable[str] = (),
        max_tool_calls: int = 0,
        max_model_tokens: int = 0,
        max_answer_tokens: int = 0,
        timeout_seconds: float = 0.0,
        temperature: float | None = None,
        token_budget: int = 0,
        conversation_id: str = "",
        agent: str = "",
        archives: Iterable[ArchiveRef] = (),
        model_id: str = "",
        tags: Iterable[str] = (),
        node_types: Iterable[str] = (),
        since: datetime | str = "",
        until: datetime | str = "",
        under: NodeRef | None = None,
        valid_at: datetime | str = "",
        include_outdated: bool = False,
    ) -> AsyncIterator[QueryEvent]:
        """Like `query`; yields text, calls and results as they come, and the answer last. If you stop, the work ends.

        Args:
            query: The question, at most 8192 characters.
            tools_enabled: Whether the model may call tools.
            allowed_tools: The only tools that it may call. Tools that change something, reach other machines or files,
                or ask the model themselves must be named here; if empty, those that it is offered without.
            max_tool_calls: The most calls of tools; 5 if 0, at most 20.
            max_model_tokens: The most tokens that the chat model may read and write; no limit if 0.
            max_answer_tokens: The most tokens of one text of the model; its own limit if 0.
            timeout_seconds: After how many seconds the query ends with what it has; 120 if 0, at most 600.
            temperature: How freely the model chooses its words, from 0 to 2; 0 if ``None``.
            token_budget: The most tokens of passages that the model gets with the question; 2000 if 0.
            conversation_id: A name of your choice: the model gets the earlier turns of that conversation, and this one
                is kept. Nobody else reads it.
            agent: Who asks, for tools that have an agent; your agent if empty.
            archives: Recall considers only these archives.
            model_id: Only archives of this model.
            tags: Only nodes with all of these tags.
            node_types: Only nodes of one of these types.
            since: Only nodes from this time or later.
            until: Only nodes from before this time.
            under: Only this node and the nodes below it.
            valid_at: Only nodes that hold at this time; without it, those that do not hold any more are left out.
            include_outdated: Whether to consider nodes that do not hold, too.
        """
        request = wire.StreamQueryRequest(
            workspace=self._workspace,
            revision=self._revision,
            query=query,
            filter=filtered(archives, model_id, tags, node_types, since, until, under, valid_at, include_outdated),
            options=wire.QueryOptions(
                tools_enabled=tools_enabled,
                allowed_tools=several("allowed_tools", allowed_tools),
                max_tool_calls=max_tool_calls,
                max_model_tokens=max_model_tokens,
                max_answer_tokens=max_answer_tokens,
                timeout_seconds=timeout_seconds,
                temperature=temperature,
                token_budget=token_budget,
            ),
            conversation_id=conversation_id,
            agent=agent,
        )
        async for event in self._transport.stream(request, wire.StreamQueryResponse):
            yield event_of(event)

    async def plan_query(
        self,
        query: str,
        *,
        tools_enabled: bool = True,
        allowed_tools: Iterable[str] = (),
        max_tool_calls: int = 0,
        max_model_tokens: int = 0,
        timeout_seconds: float = 0.0,
        token_budget: int = 0,
        archives: Iterable[ArchiveRef] = (),
        model_id: str = "",
        tags: Iterable[str] = (),
        node_types: Iterable[str] = (),
        since: datetime | str = "",
        until: datetime | str = "",
        under: NodeRef | None = None,
        valid_at: datetime | str = "",
        include_outdated: bool = False,
    ) -> QueryPlan:
        """Tells which tools the chat model would call to answer a question; none is called.

        Args:
            query: The question, at most 8192 characters.
            tools_enabled: Whether the model may call tools.
            allowed_tools: The only tools that it may call. Tools that change something, reach other machines or files,
                or ask the model themselves must be named here; if empty, those that it is offered without.
            max_tool_calls: The most calls of tools; 5 if 0, at most 20.
            max_model_tokens: The most tokens that the chat model may read and write; no limit if 0.
            timeout_seconds: After how many seconds the query ends with what it has; 120 if 0, at most 600.
            token_budget: The most tokens of passages that the model gets with the question; 2000 if 0.
            archives: Recall considers only these archives.
            model_id: Only archives of this model.
            tags: Only nodes with all of these tags.
            node_types: Only nodes of one of these types.
            since: Only nodes from this time or later.
            until: Only nodes from before this time.
            under: Only this node and the nodes below it.
            valid_at: Only nodes that hold at this time; without it, those that do not hold any more are left out.
            include_outdated: Whether to consider nodes that do not hold, too.
        """
        request = wire.PlanQueryRequest(
            workspace=self._workspace,
            revision=self._revision,
            query=query,
            filter=filtered(archives, model_id, tags, node_types, since, until, under, valid_at, include_outdated),
            options=wire.QueryOptions(
                tools_enabled=tools_enabled,
                allowed_tools=several("allowed_tools", allowed_tools),
                max_tool_calls=max_tool_calls,
                max_model_tokens=max_model_tokens,
                timeout_seconds=timeout_seconds,
                token_budget=token_budget,
            ),
        )
        return QueryPlan.from_wire(await self._transport.call(request, wire.PlanQueryResponse, waits=True))


class AsyncConversations:
    """The conversations that the questions of whoever calls have made in a workspace."""

    _transport: Transport
    _workspace: str

    async def conversations(self) -> list[QueryConversation]:
        """Your conversations, the one that was used last first."""
        request = wire.ListConversationsRequest(workspace=self._workspace)
        response = await self._transport.call(request, wire.ListConversationsResponse)
        return [QueryConversation.from_wire(each) for each in response.conversations]

    async def conversation(self, conversation_id: str) -> QueryConversation:
        """A conversation of yours, with its turns.

        Args:
            conversation_id: Its name.
        """
        request = wire.GetConversationRequest(workspace=self._workspace, conversation_id=conversation_id)
        response = await self._transport.call(request, wire.GetConversationResponse)
        return QueryConversation.from_wire(response.conversation, response.turns)

    async def delete_conversation(self, conversation_id: str) -> None:
        """Deletes a conversation of yours for good.

        Args:
            conversation_id: Its name.
        """
        request = wire.DeleteConversationRequest(workspace=self._workspace, conversation_id=conversation_id)
        await self._transport.call(request, wire.DeleteConversationResponse)
