"""Inlay: a tensor compiler for machines made of different parts."""
