CREATE DATABASE {control} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
CREATE TABLE {control}.stream (
  workflow VARCHAR(64) NOT NULL,
  name VARCHAR(64) NOT NULL,
  position LONGTEXT NOT NULL COMMENT 'GTID set: everything in it is on this server',
  state VARCHAR(16) NOT NULL COMMENT 'running, stopped or error',
  message TEXT NOT NULL COMMENT 'why it stopped',
  epoch BIGINT UNSIGNED NOT NULL COMMENT 'fencing token: grows with every take-over',
  applied_at DATETIME(6) NULL COMMENT 'commit time, at the source and in UTC, of the last applied transaction',
  updated_at DATETIME(6) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (workflow, name)
) ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
CREATE TABLE {control}.log (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  workflow VARCHAR(64) NOT NULL,
  stream VARCHAR(64) NOT NULL,
  happened_at DATETIME(6) NOT NULL COMMENT 'UTC',
  kind VARCHAR(32) NOT NULL,
  message TEXT NOT NULL,
  PRIMARY KEY (id),
  KEY by_stream (workflow, stream, id)
) ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
