"""Text and HTML for people. Everything here returns text and writes nothing."""
