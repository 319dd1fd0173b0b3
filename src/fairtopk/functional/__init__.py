"""The formulas: tensors in, tensors out, nothing remembered."""
