-- Subjects by the id of their node, which answers name and take as a root.
--
-- Old pods look up no subject by it.

CREATE INDEX subject_nodes_node ON myria.subject_nodes (tenant_id, node_id) WHERE is_subject;
