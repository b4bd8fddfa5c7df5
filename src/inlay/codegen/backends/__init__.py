"""The back ends: a file each, named as the `loader` of the architectures that they make code for."""
