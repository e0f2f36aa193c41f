-- Apache Hudi tables in the stock DuckDB shell, in plain SQL: no Python and no extension.
--
--     duckdb -init sql/hudi.sql
--     FROM hudi_scan('/data/trips');
--
-- Table versions 6, 8 and 9, partitioned or not. The macros read what lies in base files: every Copy-on-Write table, and
-- Merge-on-Read tables whose log files have all been compacted or with mode := 'read_optimized'. Whatever they cannot read
-- correctly is an error that names the way out; the full thing is `lakesql`, or `lakesql serve` for this shell.
--
--     hudi_scan(p, as_of := , mode := 'snapshot')        rows; mode := 'read_optimized' for base files only
--     hudi_read_optimized(p, as_of := )                  the same as that mode
--     hudi_incremental(p, begin, "end" := )              latest state of the rows changed in (begin, end]
--     hudi_timeline(p)                                   one row per instant of the active timeline
--     hudi_files(p, as_of := , partition := )            one row per file slice
--     hudi_partitions(p), hudi_properties(p)             one row per partition, per property
--
-- Names with hudi__ are parts of these and may change. DuckDB binds a table macro without knowing what is in a file, so a
-- scan binds to all data files and then keeps the live ones: the columns are compared with the table's schema at run time.


-- Times and settings -------------------------------------------------------------------------------------------------

CREATE OR REPLACE TEMP MACRO hudi__root(p) AS rtrim(p::VARCHAR, '/');

-- An instant (17 or 14 digits) stays; a date, or a time without seconds, is its first moment; a time without fraction is the
-- whole second.
CREATE OR REPLACE TEMP MACRO hudi__time_of(m) AS
  strftime(
    (m['day'] || ' ' || coalesce(nullif(m['time'], ''), '00:00:00'))::TIMESTAMP
      - to_minutes(CASE WHEN m['zone'] IN ('', 'Z') THEN 0
          ELSE (m['zone'][1] || '1')::INTEGER * (m['zone'][2:3]::INTEGER * 60 + coalesce(nullif(replace(m['zone'][4:], ':', ''), ''), '0')::INTEGER) END),
    '%Y%m%d%H%M%S')
  || CASE WHEN m['fraction'] <> '' THEN left(m['fraction'] || '00', 3) WHEN length(m['time']) < 8 THEN '000' ELSE '999' END;

CREATE OR REPLACE TEMP MACRO hudi__instant(moment) AS
  list_transform([trim(moment::VARCHAR)], lambda given: CASE
    WHEN given IS NULL OR regexp_full_match(given, '\d{14}|\d{17}') THEN given
    WHEN regexp_full_match(given, '\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,9})?)?)?\s*(Z|[+-]\d\d(:?\d\d)?)?') THEN
      list_transform([regexp_extract(given, '^(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,9}))?)?\s*(Z|[+-]\d\d(?::?\d\d)?)?$', ['day', 'time', 'fraction', 'zone'])],
        lambda m: hudi__time_of(m))[1]
    ELSE error('''' || given || ''' is not a point in time. Give an instant (17 or 14 digits), a date such as 2026-11-30, or a timestamp such as '
      || '2026-11-30 01:52:21.364.')
  END)[1];

-- The text of a Java property value: \: \= \  and \uXXXX are escapes.
CREATE OR REPLACE TEMP MACRO hudi__unescaped(text) AS
  CASE WHEN contains(text, '\')
    THEN coalesce(json_extract_string(TRY_CAST('"' || replace(regexp_replace(text, '\\([^\\unrtf])', '\1', 'g'), '"', '\"') || '"' AS JSON), '$'), text)
    ELSE text END;

-- One row, or an error when there is no table. The backup counts while another engine replaces the properties.
CREATE OR REPLACE TEMP MACRO hudi__settings(p) AS TABLE
  WITH found AS (
    SELECT arg_min(content, filename) AS content
    FROM read_text([hudi__root(p) || '/.hoodie/hoodie.properties', hudi__root(p) || '/.hoodie/hoodie.properties.backup'])
    WHERE contains(content, 'hoodie.table.version')
  ), pairs AS (
    SELECT regexp_extract(line, '^\s*((?:\\.|[^\\=:\s])+)\s*[=:]?\s*(.*?)\r?$', ['key', 'value']) AS pair
    FROM (SELECT unnest(string_split(content, chr(10))) AS line FROM found)
    WHERE NOT regexp_matches(line, '^\s*([#!]|$)')
  ), settings AS (
    SELECT map_from_entries(coalesce(list({'k': hudi__unescaped(pair['key']), 'v': hudi__unescaped(pair['value'])} ORDER BY pair['key']), [])) AS props
    FROM pairs
  )
  SELECT props, props['hoodie.table.version']::INTEGER AS version, coalesce(props['hoodie.table.type'], 'COPY_ON_WRITE') AS kind,
    lower(coalesce(props['hoodie.populate.meta.fields'], 'true')) = 'true' AS meta_fields
  FROM settings
  WHERE CASE
    WHEN cardinality(props) = 0 THEN error(hudi__root(p) || ': not a Hudi table, there is no .hoodie/hoodie.properties with a table version. Check the path.')
    ELSE true END;

-- The same row, refused when these macros cannot read such a table.
CREATE OR REPLACE TEMP MACRO hudi__table(p) AS TABLE
  SELECT * FROM hudi__settings(p)
  WHERE CASE
    WHEN version NOT IN (6, 8, 9) THEN error(hudi__root(p) || ': table version ' || version || ' is not known; versions 6, 8 and 9 can be read.')
    WHEN upper(coalesce(props['hoodie.table.base.file.format'], 'PARQUET')) <> 'PARQUET'
      THEN error(hudi__root(p) || ': base files are ' || props['hoodie.table.base.file.format'] || ', and only Parquet can be read.')
    WHEN coalesce(props['hoodie.bootstrap.base.path'], '') <> ''
      THEN error(hudi__root(p) || ': the table was bootstrapped over files elsewhere (hoodie.bootstrap.base.path), which these macros do not read. Use Apache Hudi.')
    WHEN version >= 8 AND coalesce(props['hoodie.timeline.path'], 'timeline') <> 'timeline'
      THEN error(hudi__root(p) || ': hoodie.timeline.path is ' || props['hoodie.timeline.path'] || '; these macros look in timeline only. Use lakesql.')
    ELSE true END;


-- Timeline -----------------------------------------------------------------------------------------------------------

-- One row per instant of the active timeline: the file of its highest state, and the action word of its completed file.
CREATE OR REPLACE TEMP MACRO hudi__instants(p) AS TABLE
  WITH listed AS (
    SELECT file, parse_filename(file) AS file_name, contains(file[length(hudi__root(p)) + 1:], '/timeline/') AS layered
    FROM glob([hudi__root(p) || '/.hoodie/[0-9]*', hudi__root(p) || '/.hoodie/timeline/[0-9]*'])
  ), named AS (
    SELECT file_name, regexp_extract(file_name, '^(\d{14,20})(?:_(\d{14,20}))?\.([a-z]+)(?:\.(requested|inflight))?$',
      ['requested', 'completed', 'word', 'suffix']) AS m
    FROM listed, hudi__table(p) AS config
    WHERE layered = (config.version >= 8)
  ), states AS (
    SELECT file_name, m['requested'] AS requested, nullif(m['completed'], '') AS completed,
      CASE WHEN m['word'] = 'inflight' THEN 'commit' ELSE m['word'] END AS word,
      CASE WHEN m['word'] = 'inflight' THEN 'INFLIGHT' WHEN m['suffix'] = '' THEN 'COMPLETED' ELSE upper(m['suffix']) END AS state
    FROM named WHERE m['requested'] <> '' AND NOT (m['word'] = 'inflight' AND m['suffix'] <> '')
  ), known AS (
    SELECT *, word IN ('compaction', 'logcompaction', 'clustering') AS service,
      CASE WHEN word IN ('clean', 'rollback', 'restore', 'savepoint', 'indexing') THEN word ELSE 'write' END AS family,
      list_position(['COMPLETED', 'INFLIGHT', 'REQUESTED'], state) AS place
    FROM states
    WHERE word IN ('commit', 'deltacommit', 'replacecommit', 'compaction', 'logcompaction', 'clustering', 'clean', 'rollback', 'restore', 'savepoint', 'indexing')
  ), best AS (
    SELECT requested, family, max(word) FILTER (service) AS service,
      arg_min({'word': word, 'state': state, 'completed': completed, 'file_name': file_name}, (place, coalesce(completed, ''), file_name)) AS top
    FROM known
    WHERE NOT (state = 'COMPLETED' AND service) AND NOT (completed IS NOT NULL AND state <> 'COMPLETED')
    GROUP BY requested, family
  )
  SELECT requested, coalesce(service, top.word) AS action, top.state AS state, top.completed AS completed,
    CASE coalesce(service, top.word) WHEN 'compaction' THEN 'commit' WHEN 'logcompaction' THEN 'deltacommit' WHEN 'clustering' THEN 'replacecommit'
      ELSE top.word END AS completed_action,
    top.file_name AS file_name
  FROM best;

-- The files of completed writes, wherever the table keeps them.
CREATE OR REPLACE TEMP MACRO hudi__bodies(p) AS TABLE
  SELECT parse_filename(filename) AS file_name, content, octet_length(content) = 0 AS is_empty, last_modified
  FROM read_blob([hudi__root(p) || '/.hoodie/[0-9]*commit', hudi__root(p) || '/.hoodie/timeline/[0-9]*commit']);

-- Bodies are JSON in version 6 and Avro files from version 8 on. Of Avro these macros read what the length bytes before a
-- text make unmistakable; `printed` is the body with every byte that is not printable as \xNN.
CREATE OR REPLACE TEMP MACRO hudi__printed(content) AS
  CASE WHEN regexp_matches(content::VARCHAR, 'avro\.codec\\x[0-9A-F]{2}(deflate|snappy|zstandard|bzip2|xz)')
    THEN error('An instant file of the timeline is compressed Avro, which these macros do not read. Use lakesql.')
    ELSE content::VARCHAR END;

-- An Avro varint (hexadecimal digits) as the whole number it stands for.
CREATE OR REPLACE TEMP MACRO hudi__number(digits) AS
  list_sum(list_transform(range(length(digits) // 2),
    lambda i: (('0x' || digits[2 * i + 1 : 2 * i + 2])::UTINYINT::UBIGINT & 127) << (7 * i)))::BIGINT // 2;

-- The value of key "schema" of a commit's extraMetadata: the bytes after the key are the length of the JSON and the JSON.
CREATE OR REPLACE TEMP MACRO hudi__avro_schema(content) AS
  list_transform([hex(content)], lambda digits:
    list_transform([regexp_extract(digits, '^((?:..)*?0C736368656D61(?:[89A-F].)*[0-7].)7B', 1)], lambda before:
      decode(unhex(digits[length(before) + 1 : length(before) + 2 * hudi__number(regexp_extract(before, '0C736368656D61((?:[89A-F].)*[0-7].)$', 1))])))[1])[1];

-- The file ids of an Avro record: a length byte and the id. In a list no field follows (\x02) and no path goes on (_).
CREATE OR REPLACE TEMP MACRO hudi__ids(printed, tail) AS
  list_transform(
    list_filter(
      regexp_extract_all(printed, '[HJLNPRTVXZ][0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?:-\d+)?(?:\\x02|_)?'),
      lambda found: ends_with(found, tail) AND ord(found) = 2 * (length(found) - 1 - length(tail))),
    lambda found: found[2 : length(found) - length(tail)]);


-- View ---------------------------------------------------------------------------------------------------------------

CREATE OR REPLACE TEMP MACRO hudi__parsed(p, path) AS {
  'partition_path': regexp_extract(path[length(hudi__root(p)) + 2:], '^(.*)/[^/]+$', 1),
  'base': regexp_extract(parse_filename(path), '^([^._/][^_/]*)_(\d+-\d+-\d+)_(\d+)\.parquet$', ['file_id', 'token', 'instant']),
  'log': regexp_extract(parse_filename(path), '^\.([^._/]+)_(\d+)\.log\.(\d+)(?:_(\d+-\d+-\d+))?$', ['file_id', 'instant', 'version', 'token'])};

-- Why the files of a table cannot be told in SQL; NULL when they can. DuckDB lists data files while it binds a statement and
-- the timeline when it runs it, so what was committed in between could be missed.
CREATE OR REPLACE TEMP MACRO hudi__reason(version, upto, start, earliest, too_new, restoring, untimed, odd_name, shared_id) AS CASE
  WHEN too_new IS NOT NULL THEN 'the commit ' || too_new || ' came after this statement, or its transaction, had begun and looked for files. Run it again.'
  WHEN restoring IS NOT NULL THEN 'the restore ' || restoring || ' has not finished, and which commits it takes back is not read here. Use lakesql, or finish the restore.'
  WHEN version >= 8 AND untimed IS NOT NULL THEN 'the instant file ' || untimed || ' has no completion time, as an upgrade leaves it. Use lakesql.'
  WHEN upto < start THEN 'there was no table yet as of ' || upto || ', or its timeline has been archived; the first instant known here is ' || start || '. Use lakesql for archived instants.'
  WHEN upto < earliest THEN 'the state as of ' || upto || ' has been cleaned away; the earliest instant that is surely whole is ' || earliest || '. Use lakesql to know exactly, and for savepoints.'
  WHEN odd_name IS NOT NULL THEN 'a replacecommit has taken out file groups, and ' || odd_name || ' is named in a way by which they are not found here. Use lakesql.'
  WHEN shared_id IS NOT NULL THEN 'the replaced file group ' || shared_id || ' has its name in several partitions, which are not told apart here. Use lakesql.'
  END;

-- The borders of a range, in completion times (version 6: instants).
CREATE OR REPLACE TEMP MACRO hudi__everything(low) AS coalesce(lower(trim(low)) IN ('earliest', '000', '0'), false);
CREATE OR REPLACE TEMP MACRO hudi__border(moment, writes) AS
  CASE WHEN len(list_filter(writes, lambda w: w.done = moment)) > 0 THEN moment
    ELSE coalesce(list_min(list_transform(list_filter(writes, lambda w: w.requested = moment), lambda w: w.done)), moment) END;

CREATE OR REPLACE TEMP MACRO hudi__checked_range(p, everything, low, high, first_time, meta_fields, archived) AS CASE
  WHEN NOT meta_fields THEN error(hudi__root(p) || ': the table stores no meta columns (hoodie.populate.meta.fields=false), so it is not known which commit changed a row. Compare two snapshots instead.')
  WHEN NOT everything AND low IS NULL THEN error(hudi__root(p) || ': give begin, the time after which changes count, or ''earliest'' for all.')
  WHEN low > high THEN error(hudi__root(p) || ': begin ' || low || ' is after end ' || high || '; give the earlier time first.')
  WHEN archived AND (low < first_time OR high < first_time)
    THEN error(hudi__root(p) || ': commits before ' || first_time || ' are archived, so the changes of this range are not known here. Begin at ' || first_time || ' or later, or use lakesql.')
  ELSE true END;

-- Everything that one look at the table tells, in one row: what the reading macros have in common.
--   upto       the instant up to which files count: `as_of`, or the newest of the range (low, high] when `ranged`
--   files      base and log files whose instant has completed, of groups that are not replaced; `completed` NULL: not known
--   opened     file groups of compactions that have not finished
--   chosen     the instants of the range; with `everything` those after it
--   names, evolved   the columns of the newest schema, and whether ALTER TABLE has changed columns
CREATE OR REPLACE TEMP MACRO hudi__view(p, as_of, ranged, low, high) AS TABLE
  WITH config AS (
    FROM hudi__table(p)
  ), instants AS (
    SELECT *, state = 'COMPLETED' AND completed_action IN ('commit', 'deltacommit', 'replacecommit') AS is_write FROM hudi__instants(p)
  ), saved AS (
    SELECT requested FROM instants WHERE action = 'savepoint'
  ), timeline AS (
    -- Files older than the first write that is no savepoint count when nothing says otherwise: their commits are archived.
    SELECT coalesce(min(requested) FILTER (is_write AND requested NOT IN (FROM saved)), min(requested) FILTER (is_write)) AS start,
      max(requested) FILTER (action = 'restore' AND state <> 'COMPLETED') AS restoring,
      any_value(file_name) FILTER (is_write AND completed IS NULL) AS untimed,
      coalesce(list({'requested': requested, 'done': coalesce(completed, requested)}) FILTER (is_write), []) AS writes
    FROM instants
  ), archive AS (
    SELECT count(*) > 0 AS archived FROM glob([hudi__root(p) || '/.hoodie/archived/.commits_.archive*', hudi__root(p) || '/.hoodie/timeline/history/*.parquet'])
  ), times AS (
    SELECT hudi__instant(as_of) AS asked, hudi__everything(low) AS everything, CASE WHEN hudi__everything(low) THEN NULL ELSE hudi__instant(low) END AS low_time,
      hudi__instant(high) AS high_time
  ), borders AS (
    SELECT writes, asked, everything, hudi__border(low_time, writes) AS low_time, hudi__border(high_time, writes) AS high_time FROM timeline, times
  ), span AS (
    SELECT everything,
      CASE WHEN NOT ranged THEN asked WHEN high_time IS NULL THEN NULL
        ELSE coalesce(list_max(list_transform(list_filter(writes, lambda w: w.done <= high_time), lambda w: w.requested)), '0') END AS upto,
      list_transform(list_filter(writes, lambda w: CASE WHEN everything THEN coalesce(w.done > high_time, false)
        ELSE w.done > low_time AND coalesce(w.done <= high_time, true) END), lambda w: w.requested) AS chosen
    FROM borders, config, archive
    WHERE NOT ranged OR hudi__checked_range(p, everything, low_time, high_time, list_min(list_transform(writes, lambda w: w.done)), meta_fields, archived)
  ), bodies AS (
    SELECT i.requested, i.completed_action, b.content, version, b.last_modified FROM hudi__bodies(p) AS b JOIN instants AS i USING (file_name), config, span
    WHERE i.is_write AND NOT b.is_empty AND (upto IS NULL OR i.requested <= upto)
  ), schemas AS (
    SELECT coalesce(bool_or(contains(content::VARCHAR, 'latest_schema')), false) AS evolved, max(requested) FILTER (last_modified > now()) AS too_new,
      arg_max(content, requested) FILTER (regexp_matches(content::VARCHAR, CASE WHEN version < 8 THEN '\\x22schema\\x22\s*:\s*\\x22\{'
        ELSE '\\x0Cschema(?:\\x[89A-F].)*(?:\\x[0-7].|[^\\])\{' END)) AS content
    FROM bodies
  ), columns AS (
    SELECT evolved, too_new, list_filter(json_extract_string(
      coalesce(CASE WHEN content IS NULL THEN NULL WHEN version < 8 THEN json_extract_string(decode(content)::JSON, '$.extraMetadata.schema') ELSE hudi__avro_schema(content) END,
        props['hoodie.table.create.schema'])::JSON, '$.fields[*].name'), lambda name: NOT starts_with(name, '_hoodie_')) AS names
    FROM schemas, config
  ), plain AS (
    SELECT unnest(map_entries(json_transform(json_extract(decode(content)::JSON, '$.partitionToReplaceFileIds'), '"MAP(VARCHAR, VARCHAR[])"'))) AS entry
    FROM bodies WHERE version < 8 AND completed_action = 'replacecommit'
  ), replaced AS (
    SELECT entry.key AS partition_path, unnest(entry.value) AS file_id FROM plain
    UNION
    SELECT NULL, unnest(hudi__ids(hudi__printed(content), '')) FROM bodies WHERE version >= 8 AND completed_action = 'replacecommit'
  ), cleaned AS (
    -- The second instant in the metadata of a clean is the earliest one retained or, when it went by file versions, a later
    -- one; without it the clean itself counts.
    SELECT max(coalesce(nullif(list_extract(regexp_extract_all(hudi__printed(b.content), '(?:\\x22|\\x1C)(\d{17}|\d{14})', 1), 2), ''), i.requested)) AS earliest
    FROM read_blob([hudi__root(p) || '/.hoodie/[0-9]*.clean', hudi__root(p) || '/.hoodie/timeline/[0-9]*.clean']) AS b
    JOIN instants AS i ON i.file_name = parse_filename(b.filename)
    WHERE octet_length(b.content) > 0
  ), plans AS (
    SELECT unnest(hudi__ids(hudi__printed(b.content), '\x02')) AS file_id, i.requested AS instant
    FROM read_blob([hudi__root(p) || '/.hoodie/*.compaction.requested', hudi__root(p) || '/.hoodie/timeline/*.compaction.requested']) AS b
    JOIN instants AS i ON i.requested || '.compaction.requested' = parse_filename(b.filename), span
    WHERE i.action = 'compaction' AND i.state <> 'COMPLETED' AND (upto IS NULL OR i.requested <= upto)
  ), opened AS (
    SELECT coalesce(list({'file_id': file_id, 'instant': instant}), []) AS opened FROM plans
  ), parsed AS (
    SELECT file, hudi__parsed(p, file) AS m FROM glob(hudi__root(p) || '/**/*_[0-9]*')
    WHERE NOT starts_with(file[length(hudi__root(p)) + 2:], '.hoodie/')
  ), named AS (
    SELECT file, m.partition_path AS partition_path, m.base['file_id'] <> '' AS is_base,
      CASE WHEN m.base['file_id'] <> '' THEN m.base['file_id'] ELSE m.log['file_id'] END AS file_id,
      CASE WHEN m.base['file_id'] <> '' THEN m.base['instant'] ELSE m.log['instant'] END AS instant,
      TRY_CAST(m.log['version'] AS INTEGER) AS log_version,
      list_transform(string_split(m.base['token'] || m.log['token'], '-'), lambda part: TRY_CAST(part AS BIGINT)) AS token
    FROM parsed WHERE m.base['file_id'] <> '' OR m.log['file_id'] <> ''
  ), odd AS (
    SELECT any_value(parse_filename(file)) FILTER (EXISTS (FROM bodies WHERE completed_action = 'replacecommit' AND version >= 8)) AS odd_name
    FROM named WHERE NOT regexp_full_match(file_id, '[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(-\d+)?')
  ), shared AS (
    SELECT max(file_id) AS shared_id FROM (
      SELECT file_id FROM named WHERE file_id IN (SELECT file_id FROM replaced WHERE partition_path IS NULL)
      GROUP BY file_id HAVING count(DISTINCT partition_path) > 1)
  ), listed AS (
    SELECT requested, any_value(completed) FILTER (is_write) AS completed, bool_or(is_write) AS done,
      bool_or(state <> 'COMPLETED' AND action = 'compaction') AS compacting
    FROM instants GROUP BY requested
  ), visible AS (
    -- Version 6 names a log file after its slice, which a pending compaction may have opened.
    SELECT n.*, CASE WHEN version < 8 THEN n.instant ELSE l.completed END AS completed
    FROM named AS n CROSS JOIN (FROM config POSITIONAL JOIN timeline POSITIONAL JOIN span) LEFT JOIN listed AS l ON l.requested = n.instant
    WHERE (upto IS NULL OR n.instant <= upto)
      AND (coalesce(l.done, false) OR (l.requested IS NULL AND n.instant < start) OR (version < 8 AND NOT n.is_base AND coalesce(l.compacting, false)))
  ), files AS (
    SELECT coalesce(list(v), []) AS files FROM visible AS v
    WHERE NOT EXISTS (FROM replaced AS r WHERE r.file_id = v.file_id AND coalesce(r.partition_path, v.partition_path) = v.partition_path)
  )
  SELECT version, props, upto, everything, chosen, evolved, names, files, opened,
    hudi__reason(version, upto, start, earliest, too_new, restoring, untimed, odd_name, shared_id) AS reason
  FROM config POSITIONAL JOIN timeline POSITIONAL JOIN span POSITIONAL JOIN columns POSITIONAL JOIN cleaned POSITIONAL JOIN opened
    POSITIONAL JOIN odd POSITIONAL JOIN shared POSITIONAL JOIN files;


-- Rows ---------------------------------------------------------------------------------------------------------------

CREATE OR REPLACE TEMP MACRO hudi__readable(p, mode, reason, props, log_file) AS CASE
  WHEN coalesce(lower(mode), 'snapshot') NOT IN ('snapshot', 'read_optimized')
    THEN error(hudi__root(p) || ': mode ''' || mode || ''' is unknown; use one of ''snapshot'', ''read_optimized''.')
  WHEN reason IS NOT NULL THEN error(hudi__root(p) || ': ' || reason)
  WHEN lower(coalesce(props['hoodie.datasource.write.drop.partition.columns'], 'false')) = 'true'
    THEN error(hudi__root(p) || ': the files leave out the partition columns (hoodie.datasource.write.drop.partition.columns=true), which are not put back here. Use lakesql.')
  WHEN coalesce(lower(mode), 'snapshot') = 'snapshot' AND log_file IS NOT NULL
    THEN error(hudi__root(p) || ': there are log files to merge, for example ' || log_file || ', and merging needs lakesql: read the table with it, or compact it. '
      || 'hudi_read_optimized, or mode := ''read_optimized'', reads the base files only and misses those changes.')
  ELSE true END;

-- The base files of a read, one row each, or an error. Log files that no base file has taken in would have to be merged; one
-- of version 8 on whose completion is archived counts as such, since it may have completed after the base file was planned.
CREATE OR REPLACE TEMP MACRO hudi__live(p, as_of, mode, ranged, low, high) AS TABLE
  WITH look AS (
    FROM hudi__view(p, as_of, ranged, low, high)
  ), files AS (
    SELECT unnest(files, recursive := true) FROM look
  ), bases AS (
    SELECT partition_path, file_id, instant, file FROM files WHERE is_base
    QUALIFY row_number() OVER (PARTITION BY partition_path, file_id ORDER BY instant DESC, token DESC) = 1
  ), unmerged AS (
    SELECT any_value(parse_filename(f.file)) AS log_file FROM files AS f LEFT JOIN bases AS b USING (partition_path, file_id)
    WHERE NOT f.is_base AND (b.instant IS NULL OR f.completed IS NULL OR f.completed >= b.instant)
  ), granted AS (
    SELECT everything, chosen, evolved, names FROM look, unmerged WHERE hudi__readable(p, mode, reason, props, log_file)
  )
  SELECT file, everything, chosen, evolved, names FROM bases, granted;

-- The top-level names in the text of a STRUCT type: what stands in brackets is taken out from the inside.
CREATE OR REPLACE TEMP MACRO hudi__without_brackets(text) AS regexp_replace(text, '\([^()]*\)', '', 'g');
CREATE OR REPLACE TEMP MACRO hudi__bound(type) AS
  list_filter(
    list_transform(
      string_split(hudi__without_brackets(hudi__without_brackets(hudi__without_brackets(hudi__without_brackets(hudi__without_brackets(hudi__without_brackets(
        type[8 : length(type) - 1])))))), ', '),
      lambda item: CASE WHEN starts_with(item, '"') THEN replace(regexp_extract(item, '^"((?:[^"]|"")*)"', 1), '""', '"') ELSE string_split(item, ' ')[1] END),
    lambda name: NOT starts_with(name, '_hoodie_') AND name <> 'hudi__file');

CREATE OR REPLACE TEMP MACRO hudi__fits(p, bound, names, evolved) AS CASE
  WHEN evolved THEN error(hudi__root(p) || ': columns were changed by ALTER TABLE (schema on read), and old files are to be read under the new names and types. Use lakesql.')
  WHEN names IS NULL OR list_sort(bound) = list_sort(names) THEN true
  ELSE error(hudi__root(p) || ': the data files have the columns ' || bound::VARCHAR || ' and the table has ' || names::VARCHAR
    || '. The columns have changed, or files of failed writes lie about. Use lakesql.') END;

-- The pattern of data files. When nothing matches, DuckDB shows it, so it says what that means.
CREATE OR REPLACE TEMP MACRO hudi__pattern(p) AS hudi__root(p) || '/**/*_[0-9]*-[0-9]*-[0-9]*_[0-9]*.parque[t, no Hudi table here or one without data files]';

-- The meta columns come first, and as NULL when the table stores none.
CREATE OR REPLACE TEMP MACRO hudi__rows(p, as_of, mode, ranged, low, high) AS TABLE
  SELECT NULL::VARCHAR AS _hoodie_commit_time, NULL::VARCHAR AS _hoodie_commit_seqno, NULL::VARCHAR AS _hoodie_record_key,
    NULL::VARCHAR AS _hoodie_partition_path, NULL::VARCHAR AS _hoodie_file_name WHERE false
  UNION ALL BY NAME
  SELECT t.* EXCLUDE (hudi__file)
  FROM read_parquet(hudi__pattern(p), union_by_name := true, hive_partitioning := false, filename := 'hudi__file') AS t
  JOIN hudi__live(p, as_of, mode, ranged, low, high) AS l ON l.file = t.hudi__file
  WHERE hudi__fits(p, hudi__bound(typeof(t)), l.names, l.evolved);

CREATE OR REPLACE TEMP MACRO hudi_scan(p, as_of := NULL, mode := 'snapshot') AS TABLE FROM hudi__rows(p, as_of, mode, false, NULL, NULL);

CREATE OR REPLACE TEMP MACRO hudi_read_optimized(p, as_of := NULL) AS TABLE FROM hudi__rows(p, as_of, 'read_optimized', false, NULL, NULL);

CREATE OR REPLACE TEMP MACRO hudi_incremental(p, begin, "end" := NULL) AS TABLE
  SELECT t.* EXCLUDE (hudi__file)
  FROM read_parquet(hudi__pattern(p), union_by_name := true, hive_partitioning := false, filename := 'hudi__file') AS t
  JOIN hudi__live(p, NULL, 'snapshot', true, begin::VARCHAR, "end"::VARCHAR) AS l ON l.file = t.hudi__file
  WHERE hudi__fits(p, hudi__bound(typeof(t)), l.names, l.evolved) AND list_contains(l.chosen, t._hoodie_commit_time) <> l.everything;


-- Inspection ----------------------------------------------------------------------------------------------------------

CREATE OR REPLACE TEMP MACRO hudi_properties(p) AS TABLE
  SELECT entry.key AS key, entry.value AS value FROM (SELECT unnest(map_entries(props)) AS entry FROM hudi__settings(p)) ORDER BY key;

-- The write stats of an Avro commit (hexadecimal digits): file id, path, previous instant, then numWrites, numDeletes,
-- numUpdateWrites, totalWriteBytes, totalWriteErrors, the partition, three totals, numInserts. 00 is NULL, 02 starts a value.
CREATE OR REPLACE TEMP MACRO hudi__stat_pattern() AS
  replace('02(?:4[8ACE]|5[02468A])(?:3[0-9]|[46][1-6]){8}2D(?:(?:3[0-9]|[46][1-6]){4}2D){3}(?:3[0-9]|[46][1-6]){12}(?:2D(?:3[0-9])+)?'
    || '02#(?:[2-9A-F].)+(?:02(?:22(?:3.){17}|1C(?:3.){14}|086E756C6C)|00)(02#|00)(02#|00)(02#|00)(02#|00)(?:02#|00)'
    || '(0200|00|02#(?:[2-9A-F].)+)(?:02#|00)(?:02#|00)(?:02#|00)(02#|00)', '#', '(?:[89A-F].)*[0-7].');

CREATE OR REPLACE TEMP MACRO hudi__stat_number(digits) AS CASE WHEN starts_with(digits, '02') THEN hudi__number(digits[3:]) ELSE 0 END;

CREATE OR REPLACE TEMP MACRO hudi__avro_stats(digits) AS
  list_transform(
    list_transform(regexp_extract_all(digits, hudi__stat_pattern()),
      lambda stat: regexp_extract(stat, hudi__stat_pattern(), ['writes', 'deletes', 'updates', 'bytes', 'place', 'inserts'])),
    lambda m: {'numWrites': hudi__stat_number(m['writes']), 'numInserts': hudi__stat_number(m['inserts']),
      'numUpdateWrites': hudi__stat_number(m['updates']), 'numDeletes': hudi__stat_number(m['deletes']),
      'totalWriteBytes': hudi__stat_number(m['bytes']), 'place': m['place']});

CREATE OR REPLACE TEMP MACRO hudi__json_stats(body) AS
  flatten(list_transform(
    map_entries(json_transform(json_extract(body, '$.partitionToWriteStats'),
      '"MAP(VARCHAR, STRUCT(numWrites BIGINT, numInserts BIGINT, numUpdateWrites BIGINT, numDeletes BIGINT, totalWriteBytes BIGINT)[])"')),
    lambda e: list_transform(e.value, lambda s: {'numWrites': s.numWrites, 'numInserts': s.numInserts, 'numUpdateWrites': s.numUpdateWrites,
      'numDeletes': s.numDeletes, 'totalWriteBytes': s.totalWriteBytes, 'place': e.key})));

CREATE OR REPLACE TEMP MACRO hudi__operation(digits) AS
  list_filter(['INSERT', 'INSERT_PREPPED', 'UPSERT', 'UPSERT_PREPPED', 'BULK_INSERT', 'BULK_INSERT_PREPPED', 'DELETE', 'DELETE_PREPPED', 'BOOTSTRAP',
      'INSERT_OVERWRITE', 'INSERT_OVERWRITE_TABLE', 'DELETE_PARTITION', 'CLUSTER', 'COMPACT', 'LOG_COMPACT', 'INDEX', 'ALTER_SCHEMA', 'BUCKET_RESCALE', 'UNKNOWN'],
    lambda word: contains(digits, '02' || lpad(hex(2 * length(word)), 2, '0') || hex(word)))[1];

CREATE OR REPLACE TEMP MACRO hudi_timeline(p, archived := false) AS TABLE
  WITH instants AS (
    FROM hudi__instants(p)
  ), bodies AS (
    SELECT i.requested, b.content, b.is_empty, c.version FROM hudi__bodies(p) AS b JOIN instants AS i USING (file_name), hudi__table(p) AS c
  ), told AS (
    SELECT requested,
      CASE WHEN is_empty THEN NULL WHEN version < 8 THEN json_extract_string(decode(content)::JSON, '$.operationType') ELSE hudi__operation(hex(content)) END AS operation,
      coalesce(CASE WHEN is_empty THEN NULL WHEN version < 8 THEN hudi__json_stats(decode(content)::JSON)
        WHEN hudi__printed(content) IS NOT NULL THEN hudi__avro_stats(hex(content)) END, []) AS stats
    FROM bodies
  ), counts AS (
    SELECT requested, operation, coalesce(list_sum(list_transform(stats, lambda s: s.numWrites)), 0)::BIGINT AS rows_written,
      coalesce(list_sum(list_transform(stats, lambda s: s.numInserts)), 0)::BIGINT AS rows_inserted,
      coalesce(list_sum(list_transform(stats, lambda s: s.numUpdateWrites)), 0)::BIGINT AS rows_updated,
      coalesce(list_sum(list_transform(stats, lambda s: s.numDeletes)), 0)::BIGINT AS rows_deleted,
      length(stats)::BIGINT AS files_written, list_unique(list_transform(stats, lambda s: s.place))::BIGINT AS partitions_written,
      coalesce(list_sum(list_transform(stats, lambda s: s.totalWriteBytes)), 0)::BIGINT AS bytes_written
    FROM told
  )
  SELECT i.requested AS instant, i.action, i.state, i.completed, n.operation, i.file_name, false AS archived, n.rows_written, n.rows_inserted,
    n.rows_updated, n.rows_deleted, n.files_written, n.partitions_written, n.bytes_written
  FROM instants AS i
  LEFT JOIN counts AS n ON n.requested = i.requested AND i.state = 'COMPLETED' AND i.completed_action IN ('commit', 'deltacommit', 'replacecommit')
  WHERE CASE WHEN archived THEN error(hudi__root(p) || ': archived instants are not read here. Use lakesql for hudi_timeline(..., archived := true).') ELSE true END
  ORDER BY i.requested, i.action;

-- One row per file slice, `newer` counting from the newest slice of its group. From version 8 on a log belongs to the largest
-- base instant, or pending compaction, that is not younger than its completion, and without one to the group's first log.
CREATE OR REPLACE TEMP MACRO hudi__slices(p, as_of) AS TABLE
  WITH look AS (
    SELECT files, opened, version FROM hudi__view(p, as_of, false, NULL, NULL)
    WHERE CASE WHEN reason IS NULL THEN true ELSE error(hudi__root(p) || ': ' || reason) END
  ), visible AS (
    SELECT version, unnest(files, recursive := true) FROM look
  ), opened AS (
    SELECT unnest(opened, recursive := true) FROM look
  ), bases AS (
    SELECT partition_path, file_id, instant, file FROM visible WHERE is_base
    QUALIFY row_number() OVER (PARTITION BY partition_path, file_id, instant ORDER BY token DESC) = 1
  ), starts AS (
    SELECT partition_path, file_id, instant FROM bases
    UNION
    SELECT v.partition_path, v.file_id, o.instant FROM visible AS v JOIN opened AS o USING (file_id)
  ), logs AS (
    SELECT v.partition_path, v.file_id, v.file, v.instant AS log_instant, v.log_version, v.token,
      max(CASE WHEN v.version < 8 THEN v.instant ELSE s.instant END) AS instant
    FROM visible AS v LEFT JOIN starts AS s
      ON s.partition_path = v.partition_path AND s.file_id = v.file_id AND s.instant <= coalesce(v.completed, v.instant)
    WHERE NOT v.is_base GROUP BY ALL
  ), placed AS (
    SELECT * REPLACE (coalesce(instant, min(log_instant) FILTER (instant IS NULL) OVER (PARTITION BY partition_path, file_id)) AS instant) FROM logs
  ), sizes AS (
    SELECT filename AS file, size FROM read_blob(hudi__root(p) || '/**/*_[0-9]*')
  ), stacks AS (
    SELECT partition_path, file_id, instant, count(*) AS log_count, sum(size)::BIGINT AS log_bytes,
      list(parse_filename(file) ORDER BY log_instant, log_version, token) AS log_files
    FROM placed JOIN sizes USING (file) GROUP BY ALL
  )
  SELECT partition_path, file_id, instant AS base_instant, parse_filename(b.file) AS base_file, z.size AS base_bytes,
    coalesce(k.log_count, 0) AS log_count, coalesce(k.log_bytes, 0) AS log_bytes, coalesce(k.log_files, []) AS log_files,
    row_number() OVER (PARTITION BY partition_path, file_id ORDER BY instant DESC) AS newer,
    b.file IS NULL AND instant IN (SELECT instant FROM opened) AS compacting
  FROM bases AS b FULL JOIN stacks AS k USING (partition_path, file_id, instant) LEFT JOIN sizes AS z ON z.file = b.file;

CREATE OR REPLACE TEMP MACRO hudi_files(p, as_of := NULL, partition := NULL) AS TABLE
  SELECT partition_path, file_id, base_instant, base_file, base_bytes, log_count, log_bytes, log_files, newer = 1 AS latest
  FROM hudi__slices(p, as_of)
  WHERE partition IS NULL OR partition_path = partition
  ORDER BY partition_path, file_id, base_instant DESC;

-- The slice that a pending compaction opened is read together with the one before it.
CREATE OR REPLACE TEMP MACRO hudi_partitions(p) AS TABLE
  SELECT partition_path, count(DISTINCT file_id) AS file_groups, coalesce(sum(base_bytes), 0)::BIGINT AS base_bytes,
    sum(log_count)::BIGINT AS log_count, sum(log_bytes)::BIGINT AS log_bytes
  FROM (
    SELECT *, max(compacting) FILTER (newer = 1) OVER (PARTITION BY partition_path, file_id) AS two FROM hudi__slices(p, NULL)
  )
  WHERE newer = 1 OR (newer = 2 AND two)
  GROUP BY partition_path ORDER BY partition_path;
