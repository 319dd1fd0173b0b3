"""A scorer that learns the order of a fair teacher."""
