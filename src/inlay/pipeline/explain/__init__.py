"""What a compilation decided, and why: views of the passes that were run, as data.

Start reading at `views.py`.
"""
