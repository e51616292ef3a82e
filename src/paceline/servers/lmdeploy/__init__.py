"""LMDeploy: its /metrics."""
