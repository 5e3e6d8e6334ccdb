#!/bin/sh
echo 1..2
sql() { psql --host 127.0.0.1 --username postgres --no-align --tuples-only --command "$1"; }
# A second test could not create the table in the same database.
if sql 'create table mine (number int)' >&2; then echo 'ok 1 - database'; else echo 'not ok 1 - database'; fi
if [ "$(redis-cli incr count)" = 1 ]; then echo 'ok 2 - cache'; else echo 'not ok 2 - cache'; fi
