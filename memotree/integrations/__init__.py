"""Adapters for agent frameworks, each a small module over the Python client; nothing else imports them.

Import the module of your framework, whose extra has to be installed: `langgraph_store` (``langgraph``),
`langchain_retriever` (``langchain``), `llama_index_retriever` (``llama-index``), `openai_agents_session`
(``openai-agents``).
"""
