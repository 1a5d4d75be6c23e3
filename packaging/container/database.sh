#!/bin/sh
# Run once, by the superuser of a new database. The role of Perdure is none: row-level security does not hold for those.
set -e
psql -v ON_ERROR_STOP=1 -v password="$PERDURE_INDEX_PASSWORD" -U postgres <<'SQL'
CREATE ROLE perdure LOGIN PASSWORD :'password';
CREATE DATABASE perdure OWNER perdure;
\connect perdure
CREATE EXTENSION vector;
SQL
