"""Packing algorithms, one in each file: functions `run` of one signature, `interface.Algorithm`."""
