"""Devices for operations that nobody placed, chosen by predicted time.

A program becomes a scheduling problem: tasks with costs by device, values with sizes, memories with
capacities. Branch and bound solves small ones, a beam and local search large ones with a lower bound.
"""
