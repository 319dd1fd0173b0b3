"""Distilled orders on items that no training list holds."""
