"""Private MySQL servers and workloads for the demo, the tests and the benchmark. The product never imports it."""
