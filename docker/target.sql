-- Run once, by the image, when the target is made.
CREATE DATABASE shop;
CREATE TABLE shop.customer (
  id BIGINT NOT NULL PRIMARY KEY,
  email VARCHAR(190) NOT NULL,
  UNIQUE KEY email (email)
);

-- The least that vmerge needs on a target.
GRANT REPLICATION_APPLIER ON *.* TO vmerge;
GRANT SELECT, INSERT, UPDATE, DELETE ON shop.* TO vmerge;
GRANT CREATE, SELECT, INSERT, UPDATE, DELETE ON `\_vmerge`.* TO vmerge;
