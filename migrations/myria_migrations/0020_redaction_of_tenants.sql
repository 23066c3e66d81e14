-- What is taken out of a tenant's payloads, where that is not what the settings say.
--
-- Old pods go on working, by the settings.

ALTER TABLE myria.tenants ADD COLUMN redacted text[] COLLATE "C"
    CHECK (redacted <@ ARRAY['secret', 'password', 'card', 'email', 'phone']);
COMMENT ON COLUMN myria.tenants.redacted IS 'Kinds of what is taken out of its payloads before they are stored; NULL: what the settings say.';
