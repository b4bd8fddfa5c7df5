"""Whole programs of the text language, through every executor."""
