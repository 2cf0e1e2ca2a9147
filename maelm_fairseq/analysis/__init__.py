"""Analyses of representations."""
