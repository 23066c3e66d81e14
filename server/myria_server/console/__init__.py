"""The console: pages on which a person looks at a memory, asks it, and approves or takes back a change.

Every page is made of tool calls: the same principal, roles, masks, limits and journal as over MCP. So a page can never
show or do more than the key with which somebody signed in. Pages are rendered here and work without scripts; htmx only
replaces parts of a page that changed.
"""
