"""What ``vmerge check`` looks at beyond preflight: the risk of conflicts, and rows that collide now."""
