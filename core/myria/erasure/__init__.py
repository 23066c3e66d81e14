"""Erasure: events are gone for good, with everything that was made of them, and a receipt says so.

`model` says what is chosen and what is answered, `words` which words and phrases are looked for, `removal` empties the
places a bounded part at a time, `receipts` makes and proves receipts, `commands` is what faces call.
"""
