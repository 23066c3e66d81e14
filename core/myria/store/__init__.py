"""The PostgreSQL edge: connections, named SQL, and one module per subject."""
