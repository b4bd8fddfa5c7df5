"""The solution as a program: places on binders and operations, and copies between memories.

Every function is walked twice in the same way, first to gather demands, then to write. Instances of a
function that agree in all their places become one function.
"""
