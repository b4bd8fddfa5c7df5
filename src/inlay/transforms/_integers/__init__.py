"""What `fold_quantization` is made of: integers that stand for reals, and operators on them."""
