"""The contract of the tools: what may be asked, what is answered, and how a refusal reads.

`event` and `queries` turn decoded arguments into values of the domain, `schemas` publishes them as JSON Schema,
`answers` describes what comes back, `memory` is what a server needs from the domain.
"""
