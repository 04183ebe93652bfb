-- Run once, by the image, when the shard is made.
CREATE DATABASE shop_0;
CREATE TABLE shop_0.customer (
  id BIGINT NOT NULL PRIMARY KEY,
  email VARCHAR(190) NOT NULL,
  UNIQUE KEY email (email)
);

-- The least that vmerge needs on a source.
GRANT REPLICATION SLAVE ON *.* TO vmerge;
GRANT SELECT ON `shop\_0`.* TO vmerge;
