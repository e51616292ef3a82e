"""Acceptance on logged text, without a model: token streams in, counts out."""
