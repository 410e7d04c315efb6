//! The integration tests of the process, in one binary: each would be a link of its own otherwise.

mod capacity;
mod check;
mod cluster_report;
mod disk;
mod experiment;
mod factors;
mod import;
mod left_out;
mod load;
mod load_bench;
mod measure;
mod measure_protocols;
mod network;
mod origin;
mod origin_s3;
mod plan;
mod report;
mod serve;
mod serve_client;
mod serve_cluster;
mod serve_faults;
mod serve_gateway;
mod serve_replay;
mod serve_runs;
mod simulate;
mod tidy;
