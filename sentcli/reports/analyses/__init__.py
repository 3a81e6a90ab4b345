"""Sections of pages about what is inside models: one file for each kind of analysis."""
