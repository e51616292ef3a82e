"""A draft head of one's own: what the target computed on a log, the head trained on it, and its export."""
