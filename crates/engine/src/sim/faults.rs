//! How faults begin and end, and how processes start.

use ground::window::Nanos;

use super::disk::Disk;
use super::happening::{Caller, Happening};
use super::settings::{FaultKind, MEMBERSHIP, Process};
use super::state::{Cut, Simulation, State};
use crate::gateway::{Event, Failed, Gateway};
use crate::node::{Node, Restored, RestoredSegment};

impl Simulation {
    /// Starts the timers of a process that was just created.
    pub(super) fn start(&mut self, process: usize) {
        let life = self.life(process);
        if self.settings.membership.is_some() {
            self.processes[process].until = 0;
            let renew = Happening::Renew { process: process as Process, life };
            self.schedule.push(self.now, renew);
        }
        if process < self.nodes.len() {
            if self.settings.nodes[process].cluster.is_some() {
                self.schedule.push(self.now, Happening::NodeTick { node: process, life });
            }
        } else {
            self.tell_gateway(process - self.nodes.len(), Event::Tick, None);
        }
    }

    pub(super) fn begin_fault(&mut self, index: usize) {
        let fault = self.settings.faults[index].kind.clone();
        let time = match fault {
            FaultKind::Kill { process, down, devices_lost, .. } => {
                self.kill(usize::from(process), devices_lost);
                down
            }
            FaultKind::Stop { process, within, .. } => {
                self.stop(usize::from(process), index, within);
                return;
            }
            FaultKind::Pause { process, time } => {
                self.processes[usize::from(process)].paused += 1;
                time
            }
            FaultKind::Slow { process, factor, time } => {
                if let Some(node) = self.nodes.get_mut(usize::from(process)) {
                    node.slow *= factor;
                }
                time
            }
            FaultKind::Cut { process, from, time } => {
                self.cuts.push(Cut { fault: index, process, from, one_way: false });
                time
            }
            FaultKind::CutOneWay { process, to, time } => {
                self.cuts.push(Cut { fault: index, process, from: to, one_way: true });
                time
            }
            FaultKind::DiskFull { process, time } => {
                if let Some(node) = self.nodes.get_mut(usize::from(process)) {
                    node.full += 1;
                }
                time
            }
            FaultKind::WrongOrigin { process, empty, time } => {
                if let Some(place) = self.places.get_mut(usize::from(process)) {
                    place.go_wrong(index, empty);
                }
                time
            }
            FaultKind::OriginDead { time } => {
                self.origin.dead += 1;
                time
            }
            FaultKind::OriginRefuses { time } => {
                self.origin.refuses += 1;
                time
            }
            FaultKind::OriginSlow { factor, time } => {
                self.origin.factor *= factor;
                time
            }
            momentary => return self.strike(momentary),
        };
        if time < Nanos::MAX {
            self.schedule.push(self.now.saturating_add(time), Happening::Mend(index));
        }
    }

    /// A fault that needs no mending.
    fn strike(&mut self, fault: FaultKind) {
        match fault {
            FaultKind::ClockJump { process, by } => {
                self.jump_clock(usize::from(process), by);
            }
            FaultKind::Rot { process, share } => {
                if let Some(node) = self.nodes.get_mut(usize::from(process)) {
                    node.disks.iter_mut().for_each(|d| d.rot(share, &mut self.random.faults));
                }
            }
            FaultKind::Suspect { process } => {
                if self.settings.membership.is_some() {
                    self.suspect(usize::from(process));
                }
            }
            FaultKind::Ring { ring } => {
                if self.settings.membership.is_some() {
                    self.change_ring(ring);
                }
            }
            FaultKind::Shift { by } => {
                self.shifted = self.shifted.wrapping_add(by) % self.settings.clients.keys.max(1);
            }
            lasting => unreachable!("{lasting:?} begins and is mended"),
        }
    }

    pub(super) fn mend(&mut self, index: usize) {
        match self.settings.faults[index].kind {
            FaultKind::Kill { process, clock, .. } | FaultKind::Stop { process, clock, .. } => {
                let process = usize::from(process);
                if !self.processes[process].alive {
                    self.processes[process].clock = clock;
                    self.restart(process);
                }
            }
            FaultKind::Pause { process, .. } => self.resume(usize::from(process)),
            FaultKind::Slow { process, factor, .. } => {
                if let Some(node) = self.nodes.get_mut(usize::from(process)) {
                    node.slow /= factor;
                }
            }
            FaultKind::ClockJump { .. } | FaultKind::Rot { .. } => {}
            FaultKind::Suspect { .. } | FaultKind::Ring { .. } | FaultKind::Shift { .. } => {}
            FaultKind::DiskFull { process, .. } => {
                if let Some(node) = self.nodes.get_mut(usize::from(process)) {
                    node.full -= 1;
                }
            }
            FaultKind::Cut { .. } | FaultKind::CutOneWay { .. } => {
                self.cuts.retain(|cut| cut.fault != index)
            }
            FaultKind::WrongOrigin { process, .. } => {
                if let Some(place) = self.places.get_mut(usize::from(process)) {
                    place.mend(index);
                }
            }
            FaultKind::OriginDead { .. } => self.origin.dead -= 1,
            FaultKind::OriginRefuses { .. } => self.origin.refuses -= 1,
            FaultKind::OriginSlow { factor, .. } => self.origin.factor /= factor,
        }
    }

    /// A clock jumps. Events scheduled by it are scheduled anew.
    fn jump_clock(&mut self, process: usize, by: i64) {
        let clock = &mut self.processes[process].clock;
        *clock = clock.jumped(by);
        if let (true, Some(gateway)) =
            (self.processes[process].alive, process.checked_sub(self.nodes.len()))
        {
            let (at, life) = (self.now + 1, self.life(process));
            self.gateways[gateway].wake = at;
            self.schedule.push(at, Happening::Wake { gateway, life, at });
        }
    }

    /// A paused process resumes and handles all events that arrived meanwhile.
    fn resume(&mut self, process: usize) {
        let state = &mut self.processes[process];
        state.paused = state.paused.saturating_sub(1);
        if state.paused > 0 {
            return;
        }
        for what in std::mem::take(&mut state.deferred) {
            self.happen(what);
        }
    }

    /// A node begins to stop in order. It ends later, and is started again then.
    fn stop(&mut self, process: usize, fault: usize, within: Nanos) {
        if self.settings.membership.is_none() || !self.processes[process].alive {
            return;
        }
        let Some(node) = self.nodes.get_mut(process).filter(|node| node.stops.is_none()) else {
            return;
        };
        node.stops = Some(fault);
        let life = self.life(process);
        let order = Happening::Node { node: process, life, event: crate::node::Event::HandOver };
        self.schedule.push(self.now, order);
        self.schedule.push(self.now + within, Happening::Stopped { process, life, fault });
    }

    /// A node has handed over: the membership is told, and then it ends.
    pub(super) fn handed_over(&mut self, process: usize) {
        let Some(fault) = self.nodes[process].stops else { return };
        let FaultKind::Stop { lingers, .. } = self.settings.faults[fault].kind else { return };
        let life = self.life(process);
        self.send(process as Process, MEMBERSHIP, Happening::Leaving { member: process, life });
        self.schedule.push(self.now + lingers, Happening::Stopped { process, life, fault });
    }

    pub(super) fn stopped(&mut self, process: usize, fault: usize) {
        let FaultKind::Stop { down, .. } = self.settings.faults[fault].kind else { return };
        self.kill(process, false);
        self.schedule.push(self.now + down, Happening::Mend(fault));
    }

    /// A process ends. If its machine does not end with it, its connections are closed.
    fn kill(&mut self, process: usize, devices_lost: bool) {
        let State { life, alive, deferred, .. } = &mut self.processes[process];
        if !*alive {
            return;
        }
        *life += 1;
        *alive = false;
        deferred.clear();
        let Some(node) = self.nodes.get_mut(process) else { return };
        node.joined = false;
        node.stops = None;
        node.log = None;
        let waiting: Vec<Caller> = node.incoming.values().map(|incoming| incoming.from).collect();
        node.incoming.clear();
        node.pieces.clear();
        let (now, torn) = (self.now, self.settings.device_faults.torn);
        for disk in &mut node.disks {
            disk.lose(now, devices_lost, torn, &mut self.random.faults);
        }
        if devices_lost {
            self.places[process].forget();
        } else {
            waiting.into_iter().for_each(|from| self.fail_call(process, from, Failed::Broken));
        }
    }

    fn restart(&mut self, process: usize) {
        // The counts of the ended life would be lost with it.
        self.count_broken(process);
        self.processes[process].alive = true;
        let now = self.local(process);
        let nodes = self.nodes.len();
        if process >= nodes {
            let gateway = process - nodes;
            let settings = self.settings.gateways[gateway].clone();
            self.gateways[gateway].gateway = Gateway::new(settings, now);
            self.gateways[gateway].wake = Nanos::MAX;
        } else {
            let mut node = Node::new(self.settings.nodes[process].clone(), now);
            let disks = self.nodes[process].disks.iter().enumerate();
            let of_disk = |(device, disk): (usize, &Disk)| {
                disk.restored().map(|(segment, records)| (device, segment, records)).collect()
            };
            let records: Vec<(usize, u64, Vec<Restored>)> =
                disks.flat_map::<Vec<_>, _>(of_disk).collect();
            let found: Vec<RestoredSegment<'_>> = records
                .iter()
                .map(|(device, segment, records)| RestoredSegment {
                    device: *device,
                    segment: *segment,
                    records,
                })
                .collect();
            node.restore(&found, |work| work.into_iter().for_each(|work| work()));
            self.nodes[process].node = node;
            self.start_place(process);
            self.nodes[process].joined = self.settings.membership.is_none();
        }
        self.start(process);
    }
}
