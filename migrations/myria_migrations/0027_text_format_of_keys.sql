-- What the text of answers on the agent's face is for the bearer of a key: lines, or the JSON that old clients parse.
--
-- Old pods go on working: their answers are as the settings say. What a key is found by stays as it is, since old pods
-- call it too.

ALTER TABLE myria.keys ADD COLUMN text_format text COLLATE "C" CHECK (text_format IN ('text', 'json'));
COMMENT ON COLUMN myria.keys.text_format IS 'Text of answers on the agent''s face where a call does not say; NULL: as the settings say.';

CREATE FUNCTION myria.text_format_of_key(of_tenant text, wanted text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    named text := coalesce(current_setting('myria.tenant', true), '');
    format text;
BEGIN
    IF wanted IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM set_config('myria.tenant', of_tenant, true);
    SELECT k.text_format INTO format FROM myria.keys k WHERE k.tenant_id = of_tenant AND k.key_id = wanted;
    PERFORM set_config('myria.tenant', named, true);
    RETURN format;
END $$;
COMMENT ON FUNCTION myria.text_format_of_key IS 'What the text of answers is for the bearer of a key; it is no secret.';
