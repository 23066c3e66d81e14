"""Reading what other systems export: chats become events, kept statements become notes.

`records` says what a reader yields and `files` opens what it reads; `assistants`, `messengers`, `memories` and `tables`
know the formats, `formats` names them. No reader writes anything: `storing` does, and knows no format.
"""
