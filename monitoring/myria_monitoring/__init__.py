"""What Myria tells of itself: the metrics there are, the memory's figures out of PostgreSQL, and Prometheus' text."""
