"""Removing the words of events for good, with a receipt, and the end of a tenant."""
