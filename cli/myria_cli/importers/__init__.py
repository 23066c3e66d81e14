"""Reading what other memories export, as events, notes, turns or memories."""
