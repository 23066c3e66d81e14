"""The faces: each translates the contract of one kind of client into calls of the domain, and back."""
