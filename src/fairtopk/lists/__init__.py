"""Ranked lists: of users and items, of queries and documents."""
