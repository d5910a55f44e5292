//! The PostgreSQL tables of the exchange, and the function that executes orders.
//!
//! The rules are enforced by the database, not by the servers: a guarded `UPDATE` keeps the
//! remaining shares of a stock within range, and the unique name and number of an order ensure that
//! it is executed once, no matter which server receives it. This is a function rather than a series
//! of statements because stocks are locked during execution; this way, no lock is held during a
//! round trip.
//!
//! - Stocks are locked in numerical order, so transactions do not deadlock. Reads after the lock
//!   see what the previous holder committed.
//! - An order gets its number while its stock is locked. The numbers of one stock therefore follow
//!   the order of execution, and an order sent after the answer to another one has a larger number.
//!   A rollback leaves a gap.
//! - An unnamed order gets a name from its server that starts with `#`, which client names never
//!   do. So a server that lost its connection can repeat these orders too. A refusal of such an
//!   order is not stored.
//! - Clients number their orders with unsigned 64-bit integers, which PostgreSQL lacks: the bits
//!   are stored, and compared with the highest bit flipped.

/// Version of the tables.
pub(super) const VERSION: i32 = 1;

/// Starts opening the database. No client is waiting yet, so these steps get more time than orders:
/// many stocks may have to be inserted, and servers that start at the same time wait for the one
/// that inserts them.
pub(super) const BEGIN: &str =
    "BEGIN; SET LOCAL statement_timeout = '60s'; SET LOCAL lock_timeout = '60s'";

/// Lock for servers that open the same database at the same time; one of them creates the tables.
pub(super) const OPENING: &str = "SELECT pg_advisory_xact_lock(7310314285311648875)";

/// Checks whether the tables exist.
pub(super) const IS_THERE: &str = "SELECT to_regclass('ioloom_exchange.version') IS NOT NULL";

/// Queries the settings that affect durability.
pub(super) const SERVER: &str = "SELECT current_setting('fsync') = 'on', pg_is_in_recovery(), current_setting('server_version')";

/// Lists all stocks as of one moment.
pub(super) const SHOW: &str =
    "SELECT id, remaining, price, seq FROM ioloom_exchange.stock ORDER BY id";

/// Executes orders. Arrays of equal length: clients, requests, whether to sell, stocks, counts.
pub(super) const CARRY_OUT: &str =
    "SELECT place, outcome, left_over, number FROM ioloom_exchange.carry_out($1, $2, $3, $4, $5)";

/// Fills the stock table. Arrays of equal length: numbers, remaining shares, prices.
pub(super) const FILL: &str = "INSERT INTO ioloom_exchange.stock (id, remaining, price)
    SELECT * FROM unnest($1::bigint[], $2::integer[], $3::integer[])";

/// Commits a record without effect, which waits for the disk just as orders do.
pub(super) const KEEP: &str = "SELECT pg_logical_emit_message(true, 'ioloom', 'there')";

/// Deletes old orders, few enough to be quick, and records the latest deleted order of each client.
/// Skips orders that another server is deleting.
pub(super) const TRIM: &str = "
    WITH old AS (
        DELETE FROM ioloom_exchange.orders WHERE seq IN (
            SELECT seq FROM ioloom_exchange.orders WHERE seq <= $1
            ORDER BY seq LIMIT 2000 FOR UPDATE SKIP LOCKED)
        RETURNING client, request)
    INSERT INTO ioloom_exchange.forgotten AS known (client, request)
    SELECT client, ioloom_exchange.turned(max(ioloom_exchange.turned(request)))
    FROM old WHERE client NOT LIKE '#%' GROUP BY client ORDER BY client
    ON CONFLICT (client) DO UPDATE SET request = ioloom_exchange.turned(greatest(
        ioloom_exchange.turned(known.request), ioloom_exchange.turned(excluded.request)))";

/// Creates the tables.
pub(super) const MAKE: &str = r"
CREATE SCHEMA IF NOT EXISTS ioloom_exchange;

CREATE TABLE ioloom_exchange.version (version integer NOT NULL);

CREATE SEQUENCE ioloom_exchange.number;

-- Half of each page stays free to let an updated row fit next to its old version.
CREATE TABLE ioloom_exchange.stock (
    id bigint PRIMARY KEY,
    remaining integer NOT NULL CHECK (remaining >= 0),
    price integer NOT NULL,
    seq bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

CREATE TABLE ioloom_exchange.orders (
    seq bigint PRIMARY KEY,
    client text NOT NULL,
    request bigint NOT NULL,
    side text NOT NULL,
    stock bigint NOT NULL,
    count integer NOT NULL,
    remaining integer,
    refused text,
    UNIQUE (client, request));

-- Up to which of its orders each client's orders were deleted from the table above.
CREATE TABLE ioloom_exchange.forgotten (client text PRIMARY KEY, request bigint NOT NULL);

-- Maps the bits of an unsigned number so that they compare like it, and back.
CREATE FUNCTION ioloom_exchange.turned(request bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT request # (-9223372036854775808)::bigint $$;
";

/// Checks whether the function that executes orders is of an earlier program, which did not compare
/// repeated orders, and may be replaced.
pub(super) const HAS_OLD_FUNCTION: &str = "
    SELECT count(*) > 0 FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = 'ioloom_exchange' AND p.proname = 'carry_out'
        AND p.prosrc NOT LIKE '%number-reused%'
        AND pg_has_role(p.proowner, 'USAGE') AND has_schema_privilege(n.oid, 'CREATE')";

/// Creates or replaces the function that executes orders.
pub(super) const MAKE_FUNCTION: &str = r"
CREATE OR REPLACE FUNCTION ioloom_exchange.carry_out(
    clients text[], requests bigint[], sells boolean[], stocks bigint[], counts integer[])
RETURNS TABLE (place integer, outcome text, left_over integer, number bigint)
LANGUAGE plpgsql AS $$
DECLARE
    is_named boolean;
    is_same boolean;
BEGIN
    PERFORM s.id FROM ioloom_exchange.stock s
        WHERE s.id = ANY (stocks) ORDER BY s.id FOR NO KEY UPDATE;
    FOR i IN 1 .. cardinality(stocks) LOOP
        place := i;
        SELECT coalesce(o.refused, 'done'), o.remaining, o.seq,
            (o.side = 'sell') = sells[i] AND o.stock = stocks[i] AND o.count = counts[i]
            INTO outcome, left_over, number, is_same
            FROM ioloom_exchange.orders o WHERE o.client = clients[i] AND o.request = requests[i];
        IF FOUND THEN
            IF NOT is_same THEN
                outcome := 'number-reused';
                left_over := NULL;
                number := NULL;
            END IF;
            RETURN NEXT;
            CONTINUE;
        END IF;
        is_named := clients[i] NOT LIKE '#%';
        IF is_named AND EXISTS (
            SELECT FROM ioloom_exchange.forgotten f WHERE f.client = clients[i]
                AND ioloom_exchange.turned(requests[i]) <= ioloom_exchange.turned(f.request))
        THEN
            outcome := 'too-old';
            left_over := NULL;
            number := NULL;
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF sells[i] THEN
            UPDATE ioloom_exchange.stock s
                SET remaining = s.remaining + counts[i], seq = nextval('ioloom_exchange.number')
                WHERE s.id = stocks[i] AND s.remaining <= 2147483647 - counts[i]
                RETURNING s.remaining, s.seq INTO left_over, number;
            outcome := CASE WHEN FOUND THEN 'done' ELSE 'too-many' END;
        ELSE
            UPDATE ioloom_exchange.stock s
                SET remaining = s.remaining - counts[i], seq = nextval('ioloom_exchange.number')
                WHERE s.id = stocks[i] AND s.remaining >= counts[i]
                RETURNING s.remaining, s.seq INTO left_over, number;
            outcome := CASE WHEN FOUND THEN 'done' ELSE 'not-enough' END;
        END IF;
        IF outcome <> 'done' THEN
            left_over := NULL;
            number := NULL;
            IF NOT EXISTS (SELECT FROM ioloom_exchange.stock s WHERE s.id = stocks[i]) THEN
                outcome := 'unknown-stock';
            END IF;
            IF is_named THEN
                number := nextval('ioloom_exchange.number');
            END IF;
        END IF;
        IF number IS NOT NULL THEN
            INSERT INTO ioloom_exchange.orders VALUES (
                number, clients[i], requests[i],
                CASE WHEN sells[i] THEN 'sell' ELSE 'buy' END, stocks[i], counts[i],
                left_over, nullif(outcome, 'done'));
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;
";
