"""Reading: masking, ranking, tree assembly and cursors over one pinned snapshot and its fresh tail."""
