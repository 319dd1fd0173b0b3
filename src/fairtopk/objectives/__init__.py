"""What is minimised: the paper's terms, their estimates, the methods."""
