"""Faces that other projects know: Inlay behind their interfaces.

Each module imports the project whose interface it implements; nothing below imports this package.
"""
