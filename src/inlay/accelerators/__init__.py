"""Accelerators: a file each, named as boards call it. Each imports `inlay.accel.api` and nothing else."""
