-- A `lakesql serve` in the stock DuckDB shell of the same version: its tables, and every statement of lakesql.
--
--     LAKESQL_TOKEN=... duckdb -init sql/serve.sql
--
-- Tables and views of the server are lake.trips, lake.trips_ro and so on; a filter on them runs here, so ask the server
-- for what is large. What runs there:
--
--     FROM hudi('MERGE INTO trips USING ... ');     any statement, also SELECT, CALL and EXPLAIN
--     FROM hudi_once('load-17', 'INSERT ...');      a change that happens once, however often it is sent
--     FROM hudi_scan('trips', as_of := '...');      the table functions of lakesql
--
-- A text in dollars needs no doubled quotes: FROM hudi($$ CALL show_commits(table => 'trips') $$). Another server: change
-- the line with ATTACH.

-- INSTALL fetches both extensions, once, from DuckDB's repository; a shell that cannot reach it says so here. Fetch them where it
-- can be reached and copy ~/.duckdb/extensions, or take the files in the Python packages duckdb-extension-httpfs and
-- duckdb-extension-quack (pip install 'lakesql[serve]') and write LOAD '/path/httpfs.duckdb_extension'; and so on in place of the
-- four lines.
INSTALL httpfs;
LOAD httpfs;
INSTALL quack;
LOAD quack;

CREATE OR REPLACE TEMPORARY SECRET lakesql (TYPE quack, TOKEN getenv('LAKESQL_TOKEN'));
ATTACH 'quack:localhost:9494' AS lake;

CREATE OR REPLACE TEMP MACRO hudi(statement) AS TABLE FROM quack_query_by_name('lake', statement);

CREATE OR REPLACE TEMP MACRO hudi_text(value) AS
    CASE WHEN value IS NULL THEN 'NULL' ELSE '''' || replace(value::VARCHAR, '''', '''''') || '''' END;

CREATE OR REPLACE TEMP MACRO hudi_once(token, statement) AS TABLE
    FROM hudi('FROM hudi_execute(' || hudi_text(statement) || ', token := ' || hudi_text(token) || ')');

CREATE OR REPLACE TEMP MACRO hudi_scan(t, as_of := NULL, mode := 'snapshot') AS TABLE
    FROM hudi('FROM hudi_scan(' || hudi_text(t) || ', as_of := ' || hudi_text(as_of) || ', mode := ' || hudi_text(mode) || ')');

CREATE OR REPLACE TEMP MACRO hudi_incremental(t, begin, "end" := NULL) AS TABLE
    FROM hudi('FROM hudi_incremental(' || hudi_text(t) || ', ' || hudi_text(begin) || ', "end" := ' || hudi_text("end") || ')');

CREATE OR REPLACE TEMP MACRO hudi_timeline(t) AS TABLE FROM hudi('FROM hudi_timeline(' || hudi_text(t) || ')');

CREATE OR REPLACE TEMP MACRO hudi_files(t) AS TABLE FROM hudi('FROM hudi_files(' || hudi_text(t) || ')');

CREATE OR REPLACE TEMP MACRO hudi_properties(t) AS TABLE FROM hudi('FROM hudi_properties(' || hudi_text(t) || ')');
