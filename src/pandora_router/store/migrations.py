"""The schema as numbered steps. A step that has been released is never changed; a new one is added.

`migrate` runs the steps that are missing in a database, each in its own transaction, and refuses a database
of a newer version. Two processes may start together: the second waits for the lock and then finds the step
done.
"""

from __future__ import annotations

import time

from pandora_router.errors import UsageError
from pandora_router.store.database import Database

STEPS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE keys (
            id TEXT PRIMARY KEY, name TEXT NOT NULL, hash TEXT NOT NULL UNIQUE,
            created_at DOUBLE PRECISION NOT NULL, revoked_at DOUBLE PRECISION,
            budget BIGINT, period TEXT NOT NULL, per_minute BIGINT,
            next_at DOUBLE PRECISION NOT NULL DEFAULT 0, admin BIGINT NOT NULL)""",
        "CREATE UNIQUE INDEX keys_name ON keys (name) WHERE revoked_at IS NULL",
        """CREATE TABLE budgets (
            key TEXT NOT NULL REFERENCES keys(id), period TEXT NOT NULL,
            spent BIGINT NOT NULL DEFAULT 0, reserved BIGINT NOT NULL DEFAULT 0,
            PRIMARY KEY (key, period))""",
        """CREATE TABLE leases (
            decision TEXT PRIMARY KEY, key TEXT NOT NULL, period TEXT NOT NULL,
            reserved BIGINT NOT NULL, remaining BIGINT NOT NULL, limited BIGINT NOT NULL,
            expires_at DOUBLE PRECISION NOT NULL, closed_at DOUBLE PRECISION)""",
        "CREATE INDEX leases_open ON leases (expires_at) WHERE closed_at IS NULL",
        """CREATE TABLE decisions (
            id TEXT PRIMARY KEY, at DOUBLE PRECISION NOT NULL, key TEXT, wire TEXT NOT NULL,
            mode TEXT NOT NULL, policy TEXT NOT NULL, artifact TEXT NOT NULL, generation BIGINT NOT NULL,
            specialist TEXT NOT NULL, proposed TEXT NOT NULL, propensity DOUBLE PRECISION NOT NULL,
            session TEXT, declined TEXT, inspected BIGINT NOT NULL, inspection_cost BIGINT NOT NULL,
            baseline BIGINT, overhead DOUBLE PRECISION NOT NULL, detail TEXT NOT NULL,
            status TEXT NOT NULL, cost BIGINT NOT NULL, first_token DOUBLE PRECISION,
            seconds DOUBLE PRECISION, closed_at DOUBLE PRECISION, worker TEXT,
            asked TEXT NOT NULL, randomised BIGINT NOT NULL, worth DOUBLE PRECISION,
            changed BIGINT NOT NULL, gained DOUBLE PRECISION NOT NULL)""",
        """CREATE INDEX decisions_listed ON decisions (
            at, id, specialist, key, policy, status, declined, inspected, changed, cost)""",
        "CREATE INDEX decisions_inspected ON decisions (at) WHERE inspected > 0",
        "CREATE INDEX decisions_specialist ON decisions (specialist, at)",
        "CREATE INDEX decisions_key ON decisions (key, at)",
        "CREATE INDEX decisions_open ON decisions (at) WHERE closed_at IS NULL",
        """CREATE TABLE bodies (
            decision TEXT PRIMARY KEY REFERENCES decisions(id) ON DELETE CASCADE,
            prompt TEXT, request TEXT, response TEXT)""",
        """CREATE TABLE attempts (
            id TEXT PRIMARY KEY, decision TEXT NOT NULL REFERENCES decisions(id) ON DELETE CASCADE,
            kind TEXT NOT NULL, specialist TEXT NOT NULL, at DOUBLE PRECISION NOT NULL,
            estimate BIGINT NOT NULL, status TEXT NOT NULL, cost BIGINT NOT NULL DEFAULT 0,
            fresh BIGINT, cached BIGINT, written BIGINT, output BIGINT, reasoning BIGINT,
            usage_complete BIGINT, first_token DOUBLE PRECISION, seconds DOUBLE PRECISION,
            reason TEXT NOT NULL DEFAULT '', settled_at DOUBLE PRECISION)""",
        "CREATE INDEX attempts_decision ON attempts (decision)",
        """CREATE TABLE feedback (
            id TEXT PRIMARY KEY, decision TEXT NOT NULL REFERENCES decisions(id) ON DELETE CASCADE,
            at DOUBLE PRECISION NOT NULL, metric TEXT NOT NULL, value DOUBLE PRECISION NOT NULL,
            source TEXT NOT NULL, observed_at DOUBLE PRECISION)""",
        "CREATE INDEX feedback_decision ON feedback (decision, metric, at)",
        "CREATE INDEX feedback_at ON feedback (metric, at)",
        """CREATE TABLE sessions (
            id TEXT PRIMARY KEY, specialist TEXT NOT NULL, expires_at DOUBLE PRECISION NOT NULL)""",
        """CREATE TABLE generations (
            number BIGINT PRIMARY KEY, at DOUBLE PRECISION NOT NULL, hash TEXT NOT NULL UNIQUE,
            artifact TEXT NOT NULL)""",
        """CREATE TABLE minutes (
            minute BIGINT NOT NULL, specialist TEXT NOT NULL, key TEXT NOT NULL,
            requests BIGINT NOT NULL, errors BIGINT NOT NULL, declined BIGINT NOT NULL,
            inspected BIGINT NOT NULL, looks BIGINT NOT NULL, cost BIGINT NOT NULL,
            inspection_cost BIGINT NOT NULL, baseline BIGINT NOT NULL, compared BIGINT NOT NULL,
            overhead DOUBLE PRECISION NOT NULL, first_token DOUBLE PRECISION NOT NULL,
            first_tokens BIGINT NOT NULL, seconds DOUBLE PRECISION NOT NULL, timed BIGINT NOT NULL,
            changed BIGINT NOT NULL, gained DOUBLE PRECISION NOT NULL,
            PRIMARY KEY (minute, specialist, key))""",
        """CREATE TABLE market_bidders (
            name TEXT PRIMARY KEY, url TEXT NOT NULL, version BIGINT NOT NULL,
            joined_at DOUBLE PRECISION NOT NULL, left_at DOUBLE PRECISION)""",
        """CREATE TABLE market_auctions (
            id TEXT PRIMARY KEY, at DOUBLE PRECISION NOT NULL, mechanism TEXT NOT NULL, kind TEXT NOT NULL,
            turn BIGINT NOT NULL, bidder TEXT, price BIGINT NOT NULL, claim DOUBLE PRECISION,
            status TEXT NOT NULL, reward DOUBLE PRECISION, settled_at DOUBLE PRECISION)""",
        "CREATE INDEX market_auctions_at ON market_auctions (at)",
        "CREATE INDEX market_auctions_open ON market_auctions (at) WHERE status = 'awarded'",
        """CREATE TABLE market_calls (
            auction TEXT NOT NULL REFERENCES market_auctions(id) ON DELETE CASCADE, place BIGINT NOT NULL,
            bidder TEXT NOT NULL, turn BIGINT NOT NULL, price DOUBLE PRECISION, said TEXT NOT NULL,
            amount DOUBLE PRECISION, looks BIGINT NOT NULL, spent BIGINT NOT NULL,
            seconds DOUBLE PRECISION NOT NULL, fault TEXT, PRIMARY KEY (auction, place))""",
        """CREATE TABLE market_entries (
            auction TEXT NOT NULL, what TEXT NOT NULL, debit TEXT NOT NULL, credit TEXT NOT NULL,
            amount BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL, PRIMARY KEY (auction, what))""",
        "CREATE TABLE market_balances (account TEXT PRIMARY KEY, amount BIGINT NOT NULL)",
        """CREATE TABLE market_scores (
            bidder TEXT NOT NULL, kind TEXT NOT NULL, graded BIGINT NOT NULL,
            total DOUBLE PRECISION NOT NULL, squares DOUBLE PRECISION NOT NULL,
            PRIMARY KEY (bidder, kind))""",
        "CREATE TABLE chores (name TEXT PRIMARY KEY, next_at DOUBLE PRECISION NOT NULL)",
        """CREATE TABLE hours (
            hour BIGINT NOT NULL, specialist TEXT NOT NULL, key TEXT NOT NULL,
            requests BIGINT NOT NULL, errors BIGINT NOT NULL, declined BIGINT NOT NULL,
            inspected BIGINT NOT NULL, looks BIGINT NOT NULL, cost BIGINT NOT NULL,
            inspection_cost BIGINT NOT NULL, baseline BIGINT NOT NULL, compared BIGINT NOT NULL,
            overhead DOUBLE PRECISION NOT NULL, first_token DOUBLE PRECISION NOT NULL,
            first_tokens BIGINT NOT NULL, seconds DOUBLE PRECISION NOT NULL, timed BIGINT NOT NULL,
            changed BIGINT NOT NULL, gained DOUBLE PRECISION NOT NULL,
            PRIMARY KEY (hour, specialist, key))""",
        """CREATE TABLE calls (
            hour BIGINT NOT NULL, specialist TEXT NOT NULL, kind TEXT NOT NULL, status TEXT NOT NULL,
            calls BIGINT NOT NULL, cost BIGINT NOT NULL, fresh BIGINT NOT NULL, cached BIGINT NOT NULL,
            written BIGINT NOT NULL, output BIGINT NOT NULL, reasoning BIGINT NOT NULL,
            estimated BIGINT NOT NULL, PRIMARY KEY (hour, specialist, kind, status))""",
        """CREATE TABLE spreads (
            span BIGINT NOT NULL, start BIGINT NOT NULL, specialist TEXT NOT NULL, measure TEXT NOT NULL,
            bucket BIGINT NOT NULL, requests BIGINT NOT NULL,
            PRIMARY KEY (span, start, specialist, measure, bucket))""",
        """CREATE TABLE judged (
            hour BIGINT NOT NULL, specialist TEXT NOT NULL, metric TEXT NOT NULL, changed BIGINT NOT NULL,
            judgements BIGINT NOT NULL, total DOUBLE PRECISION NOT NULL, squares DOUBLE PRECISION NOT NULL,
            PRIMARY KEY (hour, specialist, metric, changed))""",
        """CREATE TABLE looked (
            hour BIGINT NOT NULL, specialist TEXT NOT NULL, looks BIGINT NOT NULL, won BIGINT NOT NULL,
            PRIMARY KEY (hour, specialist))""",
        "CREATE TABLE secrets (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
        """CREATE TABLE workers (
            id TEXT PRIMARY KEY, place TEXT NOT NULL, pid BIGINT NOT NULL,
            seen_at DOUBLE PRECISION NOT NULL)""",
    ),
    (
        "ALTER TABLE sessions ADD COLUMN at DOUBLE PRECISION NOT NULL DEFAULT 0",
        "ALTER TABLE sessions ADD COLUMN tokens BIGINT NOT NULL DEFAULT 0",
        "ALTER TABLE sessions ADD COLUMN held BIGINT NOT NULL DEFAULT 0",
    ),
    (  # budgets belong to keys, groups of keys, profiles and all requests
        """CREATE TABLE levels (
            key TEXT NOT NULL, period TEXT NOT NULL,
            spent BIGINT NOT NULL DEFAULT 0, reserved BIGINT NOT NULL DEFAULT 0,
            requests BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (key, period))""",
        "INSERT INTO levels (key, period, spent, reserved) SELECT key, period, spent, reserved FROM budgets",
        "DROP TABLE budgets",
        "ALTER TABLE levels RENAME TO budgets",
        "ALTER TABLE leases ADD COLUMN also TEXT NOT NULL DEFAULT ''",
        """CREATE TABLE key_groups (
            id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, budget BIGINT, period TEXT NOT NULL)""",
        "ALTER TABLE keys ADD COLUMN grouped TEXT REFERENCES key_groups(id)",
        """CREATE TABLE paces (
            id TEXT PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, budget BIGINT NOT NULL,
            period TEXT NOT NULL, worth DOUBLE PRECISION NOT NULL, expected DOUBLE PRECISION NOT NULL,
            at DOUBLE PRECISION NOT NULL)""",
    ),
    (
        """CREATE TABLE versions (
            number BIGINT PRIMARY KEY, at DOUBLE PRECISION NOT NULL, path TEXT NOT NULL,
            artifact TEXT NOT NULL, parent BIGINT, why TEXT NOT NULL, basis TEXT NOT NULL)""",
        """CREATE TABLE trials (
            id TEXT PRIMARY KEY, path TEXT NOT NULL, artifact TEXT NOT NULL, against_path TEXT NOT NULL,
            against TEXT NOT NULL, basis TEXT NOT NULL, rule TEXT NOT NULL, share DOUBLE PRECISION NOT NULL,
            watch BIGINT NOT NULL, started DOUBLE PRECISION NOT NULL, ended DOUBLE PRECISION, verdict TEXT,
            running BIGINT UNIQUE, evidence TEXT NOT NULL)""",
        """CREATE TABLE draws (
            decision TEXT PRIMARY KEY REFERENCES decisions(id) ON DELETE CASCADE, trial TEXT NOT NULL,
            at DOUBLE PRECISION NOT NULL, key TEXT, session TEXT, candidate BIGINT NOT NULL,
            share DOUBLE PRECISION NOT NULL, choice_a TEXT, choice_b TEXT,
            expected_a DOUBLE PRECISION NOT NULL, expected_b DOUBLE PRECISION NOT NULL,
            right_answer DOUBLE PRECISION, rated BIGINT NOT NULL, difference DOUBLE PRECISION,
            counted_at DOUBLE PRECISION)""",
        "CREATE INDEX draws_waiting ON draws (trial, at) WHERE rated = 1 AND counted_at IS NULL",
        "CREATE INDEX draws_counted ON draws (trial, session) WHERE counted_at IS NOT NULL",
        """CREATE TABLE trial_points (
            trial TEXT NOT NULL, rated BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL,
            mean DOUBLE PRECISION NOT NULL, error DOUBLE PRECISION, better DOUBLE PRECISION NOT NULL,
            worse DOUBLE PRECISION NOT NULL, PRIMARY KEY (trial, rated))""",
        """CREATE TABLE drifts (
            artifact TEXT NOT NULL, specialist TEXT NOT NULL, state TEXT NOT NULL,
            changed_at DOUBLE PRECISION NOT NULL, PRIMARY KEY (artifact, specialist))""",
        """CREATE TABLE alerts (
            kind TEXT NOT NULL, subject TEXT NOT NULL, occasion TEXT NOT NULL, at DOUBLE PRECISION NOT NULL,
            message TEXT NOT NULL, sent_at DOUBLE PRECISION, tries BIGINT NOT NULL,
            next_at DOUBLE PRECISION NOT NULL, PRIMARY KEY (kind, subject, occasion))""",
        """CREATE TABLE positions (
            name TEXT PRIMARY KEY, at DOUBLE PRECISION NOT NULL, id TEXT NOT NULL)""",
        "CREATE INDEX alerts_unsent ON alerts (next_at) WHERE sent_at IS NULL",
    ),
    (
        "CREATE INDEX decisions_explored ON decisions (at) WHERE mode = 'explore'",
        "CREATE INDEX decisions_session ON decisions (session, at) WHERE session IS NOT NULL",
    ),
    (
        """CREATE TABLE remarks (
            feedback TEXT PRIMARY KEY REFERENCES feedback(id) ON DELETE CASCADE,
            decision TEXT NOT NULL REFERENCES decisions(id) ON DELETE CASCADE,
            comment TEXT, correction TEXT)""",
        "CREATE INDEX remarks_decision ON remarks (decision)",
    ),
)


def migrate(database: Database) -> int:
    """Bring the schema up to date and return its number; safe to call from several processes at once."""
    with database.transaction() as open_:
        open_.run(
            "CREATE TABLE IF NOT EXISTS migrations (number BIGINT PRIMARY KEY, at DOUBLE PRECISION NOT NULL)"
        )
    for number, statements in enumerate(STEPS, start=1):
        with database.transaction() as open_:
            if not open_.run(
                "INSERT INTO migrations (number, at) VALUES (?, ?) ON CONFLICT (number) DO NOTHING",
                number,
                time.time(),
            ):
                continue
            for statement in statements:
                open_.run(statement)
    with database.transaction() as open_:
        newest = int(open_.rows("SELECT max(number) FROM migrations")[0][0])
    if newest > len(STEPS):
        raise UsageError(
            "the store",
            expected=f"a schema of version {len(STEPS)} or older",
            came=f"version {newest}",
            do="Upgrade pandora-router, or name another store.",
        )
    return newest
