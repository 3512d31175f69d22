ALTER TABLE orrery_files ADD COLUMN read_mtime BIGINT;
ALTER TABLE orrery_file_systems ADD COLUMN is_half_taken BIGINT NOT NULL DEFAULT 0;

CREATE TABLE orrery_pieces (
    fs BIGINT NOT NULL,
    run BIGINT NOT NULL,
    hash BLOB NOT NULL,
    start BIGINT NOT NULL,
    length BIGINT NOT NULL,
    size BIGINT NOT NULL,
    ctime BIGINT NOT NULL,
    node BLOB NOT NULL,
    PRIMARY KEY (fs, run, hash, start)
) WITHOUT ROWID;
