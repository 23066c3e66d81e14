"""Language models: requests, budgets, audit, and the plans and walks they propose. Deterministic code decides."""
