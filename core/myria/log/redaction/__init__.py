"""Taking out of an event what must not be kept: keys and tokens, card numbers, passwords, and, where asked, addresses.

The rules are pure: JSON in, JSON and counts out. Every expression is RE2's, so the time is linear in the text whatever
it holds; a first look over the bytes costs an ordinary event about two microseconds and is all that happens to it.
"""
