"""The verbs put together into whole jobs, with progress and files."""
