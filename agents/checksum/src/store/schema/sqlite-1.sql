CREATE TABLE orrery_file_systems (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, epoch BIGINT NOT NULL DEFAULT 0);

CREATE TABLE orrery_runs (
    fs BIGINT NOT NULL,
    id BIGINT NOT NULL,
    owner TEXT,
    owner_name TEXT,
    snapshot TEXT,
    mode TEXT NOT NULL,
    sample_percent BIGINT NOT NULL DEFAULT 0,
    algorithm BIGINT NOT NULL,
    state TEXT NOT NULL,
    began BIGINT NOT NULL,
    ended BIGINT,
    result TEXT,
    message TEXT,
    complete BIGINT NOT NULL DEFAULT 0,
    unlisted BIGINT NOT NULL DEFAULT 0,
    unlisted_example TEXT,
    total BIGINT NOT NULL DEFAULT 0,
    selected BIGINT NOT NULL DEFAULT 0,
    selected_bytes BIGINT NOT NULL DEFAULT 0,
    deleted BIGINT NOT NULL DEFAULT 0,
    verified BIGINT NOT NULL DEFAULT 0,
    new BIGINT NOT NULL DEFAULT 0,
    changed BIGINT NOT NULL DEFAULT 0,
    corrupt BIGINT NOT NULL DEFAULT 0,
    unreadable BIGINT NOT NULL DEFAULT 0,
    skipped BIGINT NOT NULL DEFAULT 0,
    bytes_read BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (fs, id)
) WITHOUT ROWID;

CREATE TABLE orrery_files (
    fs BIGINT NOT NULL,
    hash BLOB NOT NULL,
    path BLOB NOT NULL,
    size BIGINT NOT NULL,
    mtime BIGINT NOT NULL,
    ctime BIGINT NOT NULL,
    changed_run BIGINT NOT NULL,
    suspect_run BIGINT NOT NULL DEFAULT 0,
    read_run BIGINT NOT NULL DEFAULT 0,
    done_run BIGINT NOT NULL DEFAULT 0,
    algorithm BIGINT,
    checksum BLOB,
    PRIMARY KEY (fs, hash)
) WITHOUT ROWID;

CREATE TABLE orrery_parts (
    fs BIGINT NOT NULL,
    run BIGINT NOT NULL,
    part BIGINT NOT NULL,
    total BIGINT NOT NULL,
    selected BIGINT NOT NULL,
    selected_bytes BIGINT NOT NULL,
    unseen BIGINT NOT NULL,
    unseen_selected BIGINT NOT NULL,
    unseen_bytes BIGINT NOT NULL,
    new BIGINT NOT NULL,
    PRIMARY KEY (fs, run, part)
) WITHOUT ROWID;

CREATE TABLE orrery_problems (
    fs BIGINT NOT NULL,
    run BIGINT NOT NULL,
    hash BLOB NOT NULL,
    path BLOB NOT NULL,
    outcome TEXT NOT NULL,
    why TEXT NOT NULL,
    PRIMARY KEY (fs, run, hash)
) WITHOUT ROWID;

CREATE TABLE orrery_warnings (
    id INTEGER PRIMARY KEY,
    fs BIGINT NOT NULL,
    hash BLOB NOT NULL,
    path BLOB NOT NULL,
    size BIGINT NOT NULL,
    mtime BIGINT NOT NULL,
    algorithm BIGINT NOT NULL,
    expected BLOB NOT NULL,
    actual BLOB NOT NULL,
    discovered BIGINT NOT NULL,
    last_read BIGINT NOT NULL,
    created BIGINT NOT NULL,
    state TEXT NOT NULL,
    closed_run BIGINT
);
CREATE INDEX orrery_warnings_of_files ON orrery_warnings (fs, hash, state);
