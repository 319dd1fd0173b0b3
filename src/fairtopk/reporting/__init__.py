"""Pages and figures from results: nothing here trains, and nothing here reads the network."""
