"""Tests of Inlay; `tests.data` finds the shared models."""
