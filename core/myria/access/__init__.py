"""Who asks: principals, the rules of what each may do, and the keys that prove them."""
