"""The APIs and the wire's shapes: schemas, handlers and documents. Business rules are in `myria`."""
