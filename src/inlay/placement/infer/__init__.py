"""Constraints on places, and their solution.

Every node of a program gives atoms (the place of one tensor), facts about them and edges between them.
Facts that contradict each other are refused; devices are solved first, then sets of memories.
"""
