"""A trained run at work: recommendations, exported models, cards."""
