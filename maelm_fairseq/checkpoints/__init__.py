"""Checkpoints: read without executing anything, written whole, and their models built."""
