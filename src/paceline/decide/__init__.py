"""Evidence in, decision out: gate, rollout plan."""
