//! What the log says when a server has started.

use tracing::{info, warn};

use crate::server::Server;
use configuration::Config;
use configuration::token;

/// Logs what a server was started with.
pub fn announce(config: &Config, server: &Server) {
    let address = server.address();
    if let Some(memcached) = server.memcached() {
        match server.pools {
            // In front of a node or of a cluster, of which the following lines are.
            0 => info!("memcached's protocol at {memcached}"),
            1 => info!("memcached's protocol at {memcached}, 1 pool"),
            pools => info!("memcached's protocol at {memcached}, {pools} pools"),
        }
        if server.pools > 0 {
            info!("metrics at http://{address}/metrics, status at http://{address}/admin/status");
            return;
        }
    }
    info!("objects at http://{address}/objects/KEY");
    if config.serve.token.as_ref().is_some_and(|token| !token::is_hash(token.expose())) {
        warn!("serve.token is configured as it is; its hash suffices: see `concertina keys token`");
    }
    if let Some(s3) = server.s3() {
        info!("S3's protocol at http://{s3}");
    }
    if config.is_gateway() {
        let nodes = server.membership.as_ref().map_or(0, |it| it.members().ring.members().len());
        info!("gateway to {nodes} node(s)");
    }
    if !config.is_node() {
        return;
    }
    let devices: u32 = config.devices.iter().map(|group| group.count).sum();
    if let Some((it, me)) = server.membership.as_ref().and_then(|it| Some((it, it.me()?))) {
        let ring = &it.members().ring;
        info!(
            "node {} of {}, {} nodes for each key, ring {:016x}",
            ring.name(me),
            ring.members().len(),
            ring.replica_count(),
            ring.fingerprint()
        );
    }
    info!(
        "{} of memory, {devices} device(s), origin {}",
        config.node.memory_bytes,
        config.origin.in_words()
    );
    if let Some(advice) = record::memory::limit_bytes().ok().and_then(|it| config.memory_advice(it))
    {
        warn!("{advice}");
    }
    if let Some(laboratory) = config.laboratory() {
        info!("EMULATED: {laboratory}");
    }
    if let Some(dir) = &config.observe.run_dir {
        info!("run folder {}", dir.display());
    }
}
