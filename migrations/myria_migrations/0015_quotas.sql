-- What a tenant may use, where that differs from the settings.
--
-- Old pods go on working: they hold nobody to it.

ALTER TABLE myria.tenants ADD COLUMN events_per_s real CHECK (events_per_s > 0);
COMMENT ON COLUMN myria.tenants.events_per_s IS 'Events per second that it may append to each serving process; NULL: what the settings say.';
