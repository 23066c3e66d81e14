-- What the catalog says of everything that migrations make, as lines (object, fact). Statements of extensions and of
-- PostgreSQL itself are left out. Columns of tables are sorted by name: their order on the disk means nothing to us;
-- that of composite types does.
WITH ours AS (
    SELECT n.oid, n.nspname FROM pg_namespace n
    WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
), foreign_objects AS (
    SELECT classid, objid FROM pg_depend WHERE deptype = 'e'
), relations AS (
    SELECT c.*, n.nspname || '.' || c.relname AS name,
        CASE c.relkind
            WHEN 'r' THEN 'table' WHEN 'p' THEN 'partitioned table' WHEN 'v' THEN 'view'
            WHEN 'm' THEN 'materialized view' WHEN 'S' THEN 'sequence' WHEN 'c' THEN 'type'
            WHEN 'f' THEN 'foreign table'
        END AS kind
    FROM pg_class c JOIN ours n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'S', 'c', 'f')
        AND NOT EXISTS (SELECT FROM foreign_objects f WHERE f.classid = 'pg_class'::regclass AND f.objid = c.oid)
), functions AS (
    SELECT p.*, format('%s.%s of %s', n.nspname, p.proname, p.pronargs) AS name
    FROM pg_proc p JOIN ours n ON n.oid = p.pronamespace
    WHERE NOT EXISTS (SELECT FROM foreign_objects f WHERE f.classid = 'pg_proc'::regclass AND f.objid = p.oid)
), types AS (
    SELECT t.*, n.nspname || '.' || t.typname AS name
    FROM pg_type t JOIN ours n ON n.oid = t.typnamespace
    WHERE t.typtype IN ('e', 'd', 'r')
        AND NOT EXISTS (SELECT FROM foreign_objects f WHERE f.classid = 'pg_type'::regclass AND f.objid = t.oid)
), columns AS (
    SELECT r.kind, r.name AS relation, a.*, d.adbin, d.adrelid
    FROM relations r JOIN pg_attribute a ON a.attrelid = r.oid
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE a.attnum > 0 AND NOT a.attisdropped AND r.kind <> 'sequence'
), grants AS (
    SELECT r.kind || ' ' || r.name AS object, r.relacl AS acl, r.relowner AS owner, NULL AS attname
    FROM relations r
    UNION ALL SELECT c.kind || ' ' || c.relation, c.attacl, NULL, c.attname::text FROM columns c
    UNION ALL SELECT 'function ' || f.name, f.proacl, f.proowner, NULL FROM functions f
    UNION ALL SELECT 'type ' || t.name, t.typacl, t.typowner, NULL FROM types t
    UNION ALL SELECT 'schema ' || n.nspname, s.nspacl, s.nspowner, NULL
        FROM ours n JOIN pg_namespace s ON s.oid = n.oid
), facts AS (
    SELECT 'schema ' || nspname AS object, 'exists' AS fact FROM ours
    UNION ALL SELECT 'extension ' || e.extname, 'in schema ' || e.extnamespace::regnamespace
        FROM pg_extension e WHERE e.extname <> 'plpgsql'

    UNION ALL SELECT kind || ' ' || name, 'owner ' || relowner::regrole FROM relations
    UNION ALL SELECT kind || ' ' || name, 'unlogged' FROM relations WHERE relpersistence = 'u'
    UNION ALL SELECT kind || ' ' || name, 'options ' || array_to_string(reloptions, ', ')
        FROM relations WHERE reloptions IS NOT NULL
    UNION ALL SELECT r.kind || ' ' || r.name, 'options of its toast table ' || array_to_string(t.reloptions, ', ')
        FROM relations r JOIN pg_class t ON t.oid = r.reltoastrelid WHERE t.reloptions IS NOT NULL
    UNION ALL SELECT kind || ' ' || name, 'row security' || CASE WHEN relforcerowsecurity THEN ', forced' ELSE '' END
        FROM relations WHERE relrowsecurity
    UNION ALL SELECT kind || ' ' || name, 'replica identity ' || relreplident::text
        FROM relations WHERE relreplident <> 'd' AND kind LIKE '%table'
    UNION ALL SELECT kind || ' ' || name, 'partitioned by ' || pg_get_partkeydef(oid)
        FROM relations WHERE relkind = 'p'
    UNION ALL SELECT r.kind || ' ' || r.name,
            'inherits from ' || i.inhparent::regclass || coalesce(' ' || pg_get_expr(r.relpartbound, r.oid), '')
        FROM relations r JOIN pg_inherits i ON i.inhrelid = r.oid
    UNION ALL SELECT kind || ' ' || name, 'query ' || regexp_replace(pg_get_viewdef(oid), '\s+', ' ', 'g')
        FROM relations WHERE relkind IN ('v', 'm')
    UNION ALL SELECT r.kind || ' ' || r.name,
            format('%s, start %s, increment %s, from %s to %s, cache %s%s', format_type(s.seqtypid, NULL),
                s.seqstart, s.seqincrement, s.seqmin, s.seqmax, s.seqcache, CASE WHEN s.seqcycle THEN ', cycle' END)
        FROM relations r JOIN pg_sequence s ON s.seqrelid = r.oid
    UNION ALL SELECT r.kind || ' ' || r.name, 'owned by ' || d.refobjid::regclass || '.' || a.attname
        FROM relations r
        JOIN pg_depend d ON d.objid = r.oid AND d.classid = 'pg_class'::regclass
            AND d.refclassid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
        JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
        WHERE r.relkind = 'S'

    UNION ALL SELECT kind || ' ' || relation,
            CASE kind WHEN 'type' THEN format('field %s ', lpad(attnum::text, 3, '0')) ELSE 'column ' END
            || attname || ' ' || format_type(atttypid, atttypmod)
            || CASE WHEN attcollation <> 0 AND attcollation <> (SELECT typcollation FROM pg_type WHERE oid = atttypid)
                THEN ' collate ' || attcollation::regcollation ELSE '' END
            || CASE WHEN attnotnull THEN ' not null' ELSE '' END
            || CASE attidentity WHEN 'a' THEN ' identity always' WHEN 'd' THEN ' identity by default' ELSE '' END
            || CASE WHEN adbin IS NULL THEN '' WHEN attgenerated <> ''
                THEN ' generated (' || pg_get_expr(adbin, adrelid) || ')'
                ELSE ' default ' || pg_get_expr(adbin, adrelid) END
            || CASE WHEN attstorage <> (SELECT typstorage FROM pg_type WHERE oid = atttypid)
                THEN ' storage ' || attstorage::text ELSE '' END
            || CASE WHEN attcompression <> '' THEN ' compression ' || attcompression::text ELSE '' END
            || CASE WHEN coalesce(attstattarget, -1) >= 0 THEN ' statistics ' || attstattarget ELSE '' END
            || coalesce(' options ' || array_to_string(attoptions, ', '), '')
        FROM columns
    UNION ALL SELECT r.kind || ' ' || r.name, 'constraint ' || k.conname || ' ' || pg_get_constraintdef(k.oid)
            || CASE WHEN k.convalidated THEN '' ELSE ' (not validated)' END
        FROM relations r JOIN pg_constraint k ON k.conrelid = r.oid WHERE k.contype NOT IN ('n', 't')
    UNION ALL SELECT r.kind || ' ' || r.name, 'index ' || i.indexrelid::regclass || ': ' || pg_get_indexdef(i.indexrelid)
            || CASE WHEN i.indisvalid THEN '' ELSE ' (invalid)' END
        FROM relations r JOIN pg_index i ON i.indrelid = r.oid
    UNION ALL SELECT r.kind || ' ' || r.name, 'trigger ' || t.tgname || ' (' || t.tgenabled::text || '): '
            || pg_get_triggerdef(t.oid)
        FROM relations r JOIN pg_trigger t ON t.tgrelid = r.oid WHERE NOT t.tgisinternal
    UNION ALL SELECT r.kind || ' ' || r.name, format('policy %s: %s for %s to %s%s%s', p.polname,
                CASE WHEN p.polpermissive THEN 'permissive' ELSE 'restrictive' END, p.polcmd,
                (SELECT string_agg(CASE role WHEN 0 THEN 'public' ELSE role::regrole::text END, ', '
                    ORDER BY CASE role WHEN 0 THEN 'public' ELSE role::regrole::text END) FROM unnest(p.polroles) role),
                ' using (' || pg_get_expr(p.polqual, p.polrelid) || ')',
                ' with check (' || pg_get_expr(p.polwithcheck, p.polrelid) || ')')
        FROM relations r JOIN pg_policy p ON p.polrelid = r.oid
    UNION ALL SELECT r.kind || ' ' || r.name, 'rule ' || u.rulename || ': ' || pg_get_ruledef(u.oid)
        FROM relations r JOIN pg_rewrite u ON u.ev_class = r.oid WHERE u.rulename <> '_RETURN'
    UNION ALL SELECT r.kind || ' ' || r.name, 'statistics ' || s.stxname || ': ' || pg_get_statisticsobjdef(s.oid)
        FROM relations r JOIN pg_statistic_ext s ON s.stxrelid = r.oid

    UNION ALL SELECT 'type ' || t.name, CASE t.typtype
                WHEN 'e' THEN 'enum of ' || (
                    SELECT string_agg(e.enumlabel, ', ' ORDER BY e.enumsortorder) FROM pg_enum e WHERE e.enumtypid = t.oid)
                WHEN 'd' THEN 'domain over ' || format_type(t.typbasetype, t.typtypmod)
                    || CASE WHEN t.typnotnull THEN ' not null' ELSE '' END || coalesce(' default ' || t.typdefault, '')
                ELSE 'range' END
        FROM types t
    UNION ALL SELECT 'type ' || t.name, 'constraint ' || k.conname || ' ' || pg_get_constraintdef(k.oid)
        FROM types t JOIN pg_constraint k ON k.contypid = t.oid

    UNION ALL SELECT 'function ' || name, format('arguments (%s), returns %s', pg_get_function_arguments(oid),
            coalesce(pg_get_function_result(oid), 'nothing'))
        FROM functions
    UNION ALL SELECT 'function ' || name, concat_ws(', ', 'owner ' || proowner::regrole,
            (SELECT lanname FROM pg_language l WHERE l.oid = prolang),
            CASE prokind WHEN 'p' THEN 'procedure' WHEN 'a' THEN 'aggregate' WHEN 'w' THEN 'window' END,
            CASE provolatile WHEN 'i' THEN 'immutable' WHEN 's' THEN 'stable' ELSE 'volatile' END,
            CASE WHEN proisstrict THEN 'strict' END, CASE WHEN prosecdef THEN 'security definer' END,
            CASE WHEN proleakproof THEN 'leakproof' END,
            CASE proparallel WHEN 's' THEN 'parallel safe' WHEN 'r' THEN 'parallel restricted' END,
            'cost ' || procost, CASE WHEN prorows > 0 THEN 'rows ' || prorows END,
            'settings ' || array_to_string(proconfig, ', '))
        FROM functions
    UNION ALL SELECT 'function ' || name, 'body ' || coalesce(pg_get_function_sqlbody(oid), prosrc) FROM functions

    -- What nobody was granted anything on has no list: then the owner alone, or everybody for functions and types.
    UNION ALL SELECT g.object, format('grant %s%s to %s%s', string_agg(x.privilege_type, ', ' ORDER BY x.privilege_type),
            ' on column ' || g.attname, CASE x.grantee WHEN 0 THEN 'public' ELSE x.grantee::regrole::text END,
            CASE WHEN x.is_grantable THEN ' with grant option' ELSE '' END)
        FROM grants g CROSS JOIN aclexplode(coalesce(g.acl, CASE
            WHEN g.owner IS NULL THEN NULL WHEN g.object LIKE 'function %' THEN acldefault('f', g.owner)
            WHEN g.object LIKE 'type %' THEN acldefault('T', g.owner) END)) x
        WHERE x.grantee IS DISTINCT FROM g.owner
        GROUP BY g.object, g.attname, x.grantee, x.is_grantable
    UNION ALL SELECT 'default privileges of ' || d.defaclrole::regrole, format('%s in %s: %s', d.defaclobjtype,
            CASE d.defaclnamespace WHEN 0 THEN 'all' ELSE d.defaclnamespace::regnamespace::text END, d.defaclacl)
        FROM pg_default_acl d
    UNION ALL SELECT 'publication ' || p.pubname, 'exists' FROM pg_publication p
    UNION ALL SELECT 'event trigger ' || e.evtname, e.evtevent || ' ' || e.evtfoid::regproc FROM pg_event_trigger e
)
SELECT object, fact FROM facts ORDER BY object COLLATE "C", fact COLLATE "C"
