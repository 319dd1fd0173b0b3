"""The loop that trains, and the lists that it draws."""
