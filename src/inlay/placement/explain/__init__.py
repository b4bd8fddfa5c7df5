"""The reasons of a plan, as data and as text.

For each kernel they say its device, its predicted time and what speaks against every other device. For
each copy they say its size, its engine and its time.
"""
