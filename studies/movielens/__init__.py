"""The paper's experiments on MovieLens."""
