"""Readers of other tools' benchmark files: each tool's figures under our names, with what is doubtful about them."""
