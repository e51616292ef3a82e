"""Tests against real servers and engines, which `scripts/test_real` installs."""
