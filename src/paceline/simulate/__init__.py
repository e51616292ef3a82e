"""What users would feel: one replica, step by step, with and without drafts."""
