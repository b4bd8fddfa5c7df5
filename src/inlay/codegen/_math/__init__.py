"""Elementary functions by format, written as vector code by `llvm_math`."""
