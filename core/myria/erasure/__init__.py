"""Erasing the words of events for good, with a receipt, and deleting a tenant."""
