"""Shells around running servers."""
