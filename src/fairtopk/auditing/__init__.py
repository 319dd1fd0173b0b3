"""Auditing rankings made elsewhere: a table in, figures with their uncertainty out."""
