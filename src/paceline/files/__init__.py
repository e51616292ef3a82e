"""Shells around files: chat logs, traces, run files, result files."""
