"""Requests: where they come from, when they arrive and which segment they belong to."""
