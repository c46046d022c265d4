"""What an agent's day costs with MemoTree and with other memories: calls, tokens and right answers, without a model.

`python -m bench.agent_use` runs scripted flows: remember 100 facts, correct 20, forget 10, ask 100 questions, let
another agent read, look back. Each memory is used as its documentation shows, over the interface that agents use.
"""
