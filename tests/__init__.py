"""What paceline is held to; see STYLE.md, "Tests"."""
