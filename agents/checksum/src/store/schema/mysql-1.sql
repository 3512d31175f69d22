CREATE TABLE orrery_file_systems (
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    name VARCHAR(253) NOT NULL UNIQUE,
    epoch BIGINT NOT NULL DEFAULT 0
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE orrery_runs (
    fs BIGINT NOT NULL,
    id BIGINT NOT NULL,
    owner VARCHAR(64),
    owner_name VARCHAR(400),
    snapshot VARCHAR(256),
    mode VARCHAR(20) NOT NULL,
    sample_percent BIGINT NOT NULL DEFAULT 0,
    algorithm BIGINT NOT NULL,
    state VARCHAR(20) NOT NULL,
    began BIGINT NOT NULL,
    ended BIGINT,
    result VARCHAR(64),
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
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE orrery_files (
    fs BIGINT NOT NULL,
    hash BINARY(16) NOT NULL,
    path MEDIUMBLOB NOT NULL,
    size BIGINT NOT NULL,
    mtime BIGINT NOT NULL,
    ctime BIGINT NOT NULL,
    changed_run BIGINT NOT NULL,
    suspect_run BIGINT NOT NULL DEFAULT 0,
    read_run BIGINT NOT NULL DEFAULT 0,
    done_run BIGINT NOT NULL DEFAULT 0,
    algorithm BIGINT,
    checksum VARBINARY(64),
    PRIMARY KEY (fs, hash)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

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
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE orrery_problems (
    fs BIGINT NOT NULL,
    run BIGINT NOT NULL,
    hash BINARY(16) NOT NULL,
    path MEDIUMBLOB NOT NULL,
    outcome VARCHAR(20) NOT NULL,
    why TEXT NOT NULL,
    PRIMARY KEY (fs, run, hash)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE orrery_warnings (
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    fs BIGINT NOT NULL,
    hash BINARY(16) NOT NULL,
    path MEDIUMBLOB NOT NULL,
    size BIGINT NOT NULL,
    mtime BIGINT NOT NULL,
    algorithm BIGINT NOT NULL,
    expected VARBINARY(64) NOT NULL,
    actual VARBINARY(64) NOT NULL,
    discovered BIGINT NOT NULL,
    last_read BIGINT NOT NULL,
    created BIGINT NOT NULL,
    state VARCHAR(20) NOT NULL,
    closed_run BIGINT,
    KEY orrery_warnings_of_files (fs, hash, state)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
