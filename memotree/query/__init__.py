"""Answers questions with tools: a loop in which the chat model calls tools until it answers; and plans of such calls.

The composition root imports `memotree.query.service`; the gateways reach it as the operations of QueryService.
"""
