//! The processes of a cluster: one for each node, one gateway.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::plan::Plan;
use crate::lab::{self, Catalogue, Server};
use configuration::Member;
use record::RunFolder;

/// A cluster that runs until it is stopped or dropped.
pub(super) struct System {
    nodes: Vec<(String, Server)>,
    gateway: Server,
    folder: PathBuf,
}

impl System {
    /// Starts every node of a plan and a gateway before them, in a folder of their own.
    pub fn start(
        plan: &Plan,
        catalogue: &Catalogue,
        origin: &Path,
        folder: &Path,
    ) -> anyhow::Result<System> {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let mut members = Vec::new();
        for place in &plan.places {
            let (name, address) = (place.name.clone(), lab::free_address()?);
            members.push(Member { name, address, ..Member::default() });
        }
        let replicas = u32::try_from(plan.config.replicas)?;
        let memory = catalogue.memory_bytes(plan.memory_objects());
        let start = |name: &str, own: Option<&Member>, devices| {
            let mut config = lab::in_cluster(lab::server(memory, devices, origin), own, &members);
            config.cluster.replicas = replicas;
            config.gateway = plan.config.gateway()?;
            config.observe.run_dir = Some(folder.join(name));
            let path = folder.join(format!("{name}.toml"));
            lab::write_config(&path, &config)?;
            Server::start(&path, &folder.join(format!("{name}.log")))
        };
        let mut nodes = Vec::new();
        for (i, member) in members.iter().enumerate() {
            let name = &member.name;
            let speed = plan.places.iter().find(|p| p.name == *name).map_or(1.0, |p| p.speed);
            let scenario = plan.scenario;
            let mut service =
                lab::service(&scenario.kind, scenario.mu_per_s * speed, scenario.scv)?;
            // No two disks of the cluster draw the same times.
            service.seed = 1 + 4096 * i as u64;
            let path = folder.join(format!("{name}-device"));
            let disks = lab::disks(&path, scenario.disks, Some(service));
            nodes.push((name.clone(), start(name, Some(member), disks)?));
        }
        let gateway = start("gateway", None, Vec::new())?;
        Ok(System { nodes, gateway, folder: folder.to_owned() })
    }

    /// Where clients go.
    pub fn url(&self) -> &str {
        self.gateway.url()
    }

    /// Its processes.
    pub fn pids(&self) -> Vec<i32> {
        let nodes = self.nodes.iter().map(|(_, node)| node.pid());
        nodes.chain([self.gateway.pid()]).collect()
    }

    /// Stops every process, the gateway first, and reads the runs of the nodes of a plan.
    pub fn stop(self) -> anyhow::Result<Vec<(String, RunFolder)>> {
        self.gateway.stop()?;
        for (_, server) in self.nodes {
            server.stop()?;
        }
        let mut runs = Vec::new();
        let mut folders: Vec<PathBuf> = std::fs::read_dir(&self.folder)?
            .map(|entry| Ok(entry?.path()))
            .collect::<std::io::Result<_>>()?;
        folders.retain(|folder| folder.join("run.toml").exists());
        folders.sort();
        for folder in folders {
            let name = folder.file_name().map(|n| n.to_string_lossy().into_owned());
            let name = name.unwrap_or_default();
            if name != "gateway" {
                let mut run = RunFolder::read(&folder)?;
                // No report reads them.
                run.samples = Vec::new();
                runs.push((name, run));
            }
        }
        Ok(runs)
    }
}
