//! What a process remembers of its origin's identity, and where.
//!
//! A restarted process has nothing in its memory. What it keeps elsewhere (its devices' folders, a state folder, etcd) says
//! which origin it served before, so that it does not take an empty mount point or another origin for its own.
//! [`ground::origin::judge`] decides; this is what it decides by.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use ground::origin::{Creation, OriginId, Place, Refusal, Verdict, agree, judge, yields};
use tracing::{info, warn};

use crate::error::{Error, OpenError};
use crate::marker::Marker;

/// What a place outside this process says to an identity that is to be recorded there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recording {
    /// It has it for this process alone.
    Own,
    /// It has it for all members: this is the cluster's origin.
    Shared,
    /// It has another origin for all members.
    Another,
}

/// Why a place outside this process does not record an identity: what its own client says.
pub type RecorderError = Box<dyn std::error::Error + Send + Sync>;

/// Records an identity outside this process.
pub type Recorder = Box<dyn Fn(OriginId) -> Result<Recording, RecorderError> + Send + Sync>;

#[derive(Default)]
struct State {
    creation: Creation,
    /// The identity that was recorded, and by what.
    remembered: Option<(OriginId, String)>,
    /// Why it is not known what a folder remembers.
    unreadable: Option<String>,
    /// Marked folders that remember the identity.
    folders: Vec<PathBuf>,
    recorders: Vec<Recorder>,
}

/// The record of a process's origin. Shared by the origin, which finds what is there, and by the process, which says what is
/// remembered.
#[derive(Default)]
pub struct IdentityRecord {
    state: Mutex<State>,
    taken: OnceLock<OriginId>,
    /// What other members said of their origins: whether one serves this process's, and whether one serves another.
    agreed: AtomicBool,
    disagreed: AtomicBool,
}

impl fmt::Debug for IdentityRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdentityRecord").field("taken", &self.taken).finish_non_exhaustive()
    }
}

impl IdentityRecord {
    /// The record of a process that remembers nothing yet.
    pub fn new(creation: Creation) -> IdentityRecord {
        let state = State { creation, ..State::default() };
        IdentityRecord { state: Mutex::new(state), ..IdentityRecord::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an identity that `place` has recorded.
    ///
    /// # Errors
    ///
    /// If another place has recorded another identity, unless an operator ordered to take whatever origin is configured.
    pub fn remember(&self, id: OriginId, place: &str) -> Result<(), OpenError> {
        let mut state = self.lock();
        if let Some((other, other_place)) = &state.remembered {
            if *other == id || state.creation == Creation::Ordered {
                return Ok(());
            }
            let (other_place, place) = (other_place.clone(), place.to_owned());
            return Err(OpenError::Remembered { other_place, other: *other, place, id });
        }
        state.remembered = Some((id, place.to_owned()));
        Ok(())
    }

    /// Adds what the marker of a folder of the node `owner` (`None` outside a cluster) has recorded, if it has a marker. One that cannot be read may have recorded an origin:
    /// this process makes none then. That it cannot be read is no error, since whoever claims the folder says so.
    ///
    /// # Errors
    ///
    /// As [`IdentityRecord::remember`].
    pub fn remember_folder(&self, folder: &Path, owner: Option<&str>) -> Result<(), OpenError> {
        match Marker::read(folder) {
            // Another node's disk, which is not used, remembers another node's origin.
            Ok(Some(marker)) if marker.owner.is_some() && marker.owner.as_deref() != owner => {
                Ok(())
            }
            Ok(Some(Marker { origin: Some(id), .. })) => {
                self.remember(id, &folder.display().to_string())
            }
            Ok(_) => Ok(()),
            Err(why) => {
                self.doubt(why.to_string());
                Ok(())
            }
        }
    }

    /// Has this process make no origin, unless an operator ordered it, because `why` leaves open which one it served.
    pub fn doubt(&self, why: String) {
        let mut state = self.lock();
        if state.creation == Creation::FirstStart {
            state.creation = Creation::Never;
            state.unreadable = Some(why);
        }
    }

    /// Whether a process that finds no origin waits for it: one that remembers an origin, or may not make one. Others were
    /// given a wrong place.
    pub(crate) fn waits(&self) -> bool {
        let state = self.lock();
        state.creation == Creation::Never || state.remembered.is_some()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.lock().remembered.is_none()
    }

    /// Records the identity in the marker of a claimed folder: now if it is known, else once it is.
    pub fn add_folder(&self, folder: &Path) {
        let mut state = self.lock();
        if let Some(&id) = self.taken.get() {
            record_in(folder, id);
        }
        state.folders.push(folder.to_owned());
    }

    /// Has `recorder` record the identity: now if it is known, else once it is.
    pub fn add_recorder(&self, recorder: Recorder) {
        let mut state = self.lock();
        if let Some(&id) = self.taken.get() {
            self.run(&recorder, id);
        }
        state.recorders.push(recorder);
    }

    /// The origin that this process serves; `None` until one was taken. Never changes afterwards.
    pub fn id(&self) -> Option<OriginId> {
        self.taken.get().copied()
    }

    /// Compares the origin of another member with this process's. Returns whether the two may rely on each other.
    pub fn compare(&self, theirs: Option<OriginId>) -> bool {
        let ours = self.id();
        let agree = agree(ours, theirs);
        if ours.is_some() && theirs.is_some() {
            if agree { &self.agreed } else { &self.disagreed }.store(true, Ordering::Relaxed);
        }
        agree
    }

    /// [`Error::Lost`] if other members serve another origin, none serves this one, and nothing but what this process found
    /// says that it is the right one. One that remembers its origin does not yield: a newcomer with a wrong one must not
    /// stop those that serve.
    ///
    /// # Errors
    ///
    /// As said.
    pub fn check(&self) -> Result<(), Error> {
        let heard = |what: &AtomicBool| what.load(Ordering::Relaxed);
        // Without the lock, nearly always.
        if !heard(&self.disagreed) {
            return Ok(());
        }
        let remembers = self.lock().remembered.is_some();
        if !yields(remembers, heard(&self.agreed), heard(&self.disagreed)) {
            return Ok(());
        }
        let id = self.id().map(|id| id.to_string()).unwrap_or_default();
        Err(Error::Lost(format!(
            "the origin here is {id}, and the other members serve another one; mount or configure the right one and \
             start this process again"
        )))
    }

    /// Decides what to do about what is at the origin's place.
    pub(crate) fn judge(&self, place: Place) -> Verdict {
        if let Some(&id) = self.taken.get() {
            // An order holds for one origin, not for each that appears while the process runs.
            return judge(Some(id), place, Creation::Never);
        }
        let state = self.lock();
        let remembered = state.remembered.as_ref().map(|(id, _)| *id);
        judge(remembered, place, state.creation)
    }

    /// The error of a refusal by [`IdentityRecord::judge`]; `place` names what was looked at.
    pub(crate) fn lost(&self, refusal: Refusal, place: &str) -> Error {
        let (by, unreadable) = {
            let state = self.lock();
            let by = state.remembered.as_ref().map(|(_, by)| by.clone());
            (by, state.unreadable.clone())
        };
        let by = by.unwrap_or_else(|| "this process".to_owned());
        let order = "or start once with --create-origin to begin with another origin";
        Error::Lost(match refusal {
            Refusal::Missing(Some(id)) => format!(
                "{place} is missing or empty, and {by} remembers the origin {id}; mount the file system or put the \
                 origin back, {order}"
            ),
            Refusal::Missing(None) => match unreadable {
                Some(why) => format!(
                    "{place} is missing or empty, and which origin this process served is not known: {why}; mount the \
                     file system or put the origin back, {order}"
                ),
                None => format!(
                    "{place} is missing or empty, and a gateway makes no origin; start a node, or put the origin back"
                ),
            },
            Refusal::Foreign => format!(
                "{place} holds what Concertina did not make, and no origin; name an empty or a new folder, or put the \
                 origin back"
            ),
            Refusal::Another { found, remembered } => format!(
                "{place} is the origin {found}, and {by} remembers {remembered}; put that one back, {order}"
            ),
        })
    }

    /// Records that this process serves an origin, durably before it returns, so that no write is acknowledged by a process
    /// that would not know its origin again. A place that cannot be written is logged: others may remember, and a node whose
    /// disk fails must not fail with it.
    pub(crate) fn take(&self, id: OriginId) {
        let state = self.lock();
        if self.taken.set(id).is_err() {
            return;
        }
        if let Some((before, by)) = state.remembered.as_ref().filter(|(before, _)| *before != id) {
            warn!("taking the origin {id} by order; {by} remembered {before}");
        }
        info!("the origin is {id}");
        state.folders.iter().for_each(|folder| record_in(folder, id));
        state.recorders.iter().for_each(|recorder| self.run(recorder, id));
    }

    /// Of two processes of a new cluster that start together, one without its mount, each takes what it finds. The one whose origin
    /// is recorded first is right by that, before the two have heard of each other: the other acknowledges nothing.
    fn run(&self, recorder: &Recorder, id: OriginId) {
        match recorder(id) {
            Ok(Recording::Own) => {}
            Ok(Recording::Shared) => self.agreed.store(true, Ordering::Relaxed),
            Ok(Recording::Another) => {
                warn!("the origin here is {id}, and another one is recorded for all members");
                self.disagreed.store(true, Ordering::Relaxed);
            }
            Err(error) => {
                warn!("cannot record the identity of the origin: {}", ground::with_causes(&*error));
            }
        }
    }
}

/// Records an identity in a folder's marker.
fn record_in(folder: &Path, id: OriginId) {
    let record = || -> Result<(), OpenError> {
        match Marker::read(folder)? {
            Some(marker) if marker.origin == Some(id) => Ok(()),
            Some(marker) => Ok(Marker { origin: Some(id), ..marker }.write(folder)?),
            None => Err(OpenError::NoMarker { path: folder.to_owned() }),
        }
    };
    if let Err(error) = record() {
        warn!("cannot record the identity of the origin: {}", error.in_full());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marker::{Claim, FolderKind};

    #[test]
    fn folders_remember_an_origin_that_is_learnt_before_or_after_they_are_added() {
        let root = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let path = root.path().join(name);
            Claim::new(FolderKind::Device, None).take(&path).unwrap();
            path
        };
        let (early, late) = (folder("early"), folder("late"));
        let record = IdentityRecord::default();
        record.add_folder(&early);
        assert_eq!(record.judge(Place::Empty), Verdict::Create);
        record.take(OriginId::new(7));
        record.add_folder(&late);
        for folder in [early, late] {
            let next = IdentityRecord::default();
            assert!(next.is_empty());
            next.remember_folder(&folder, None).unwrap();
            let missing = Refusal::Missing(Some(OriginId::new(7)));
            assert_eq!(next.judge(Place::Empty), Verdict::Refuse(missing));
            let text = next.lost(missing, "/mnt").to_string();
            assert!(text.contains(&folder.display().to_string()), "{text}");
        }
    }

    #[test]
    fn a_folder_whose_marker_is_damaged_may_have_remembered_an_origin() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(crate::marker::NAME), "kind = ").unwrap();
        let record = IdentityRecord::default();
        record.remember_folder(folder.path(), None).unwrap();
        let missing = Refusal::Missing(None);
        assert_eq!(record.judge(Place::Empty), Verdict::Refuse(missing));
        assert!(record.lost(missing, "/mnt").to_string().contains("is damaged"));
        let there = Place::Origin(OriginId::new(1));
        assert_eq!(record.judge(there), Verdict::Take(OriginId::new(1)));
        let ordered = IdentityRecord::new(Creation::Ordered);
        ordered.remember_folder(folder.path(), None).unwrap();
        assert_eq!(ordered.judge(Place::Empty), Verdict::Create);
    }

    #[test]
    fn places_that_remember_different_origins_are_named() {
        let record = IdentityRecord::default();
        record.remember(OriginId::new(1), "a").unwrap();
        record.remember(OriginId::new(1), "b").unwrap();
        let error = record.remember(OriginId::new(2), "c").unwrap_err().to_string();
        assert!(error.contains("a remembers") && error.contains("c remembers"), "{error}");
        let ordered = IdentityRecord::new(Creation::Ordered);
        ordered.remember(OriginId::new(1), "a").unwrap();
        ordered.remember(OriginId::new(2), "c").unwrap();
    }

    #[test]
    fn a_process_that_remembers_nothing_yields_to_the_other_members() {
        let (ours, other) = (Some(OriginId::new(1)), Some(OriginId::new(2)));
        let taken = |remembered: Option<OriginId>| {
            let record = IdentityRecord::default();
            remembered.into_iter().for_each(|id| record.remember(id, "a device").unwrap());
            record.take(OriginId::new(1));
            record
        };
        let newcomer = taken(None);
        assert!(
            newcomer.compare(None) && newcomer.check().is_ok(),
            "an earlier version tells none"
        );
        assert!(!newcomer.compare(other));
        assert!(matches!(newcomer.check(), Err(Error::Lost(_))));
        assert!(newcomer.compare(ours) && newcomer.check().is_ok(), "the other one is wrong");
        let firm = taken(ours);
        assert!(!firm.compare(other) && firm.check().is_ok());
        let early = IdentityRecord::default();
        assert!(early.compare(other) && early.check().is_ok(), "nothing was taken yet");
    }

    #[test]
    fn the_origin_that_is_recorded_for_all_is_right() {
        let (ours, other) = (OriginId::new(1), OriginId::new(2));
        let taken = |recording: Recording| {
            let record = IdentityRecord::default();
            record.add_recorder(Box::new(move |_| Ok(recording)));
            record.take(ours);
            record
        };
        // Nobody was heard of yet.
        assert!(matches!(taken(Recording::Another).check(), Err(Error::Lost(_))));
        let first = taken(Recording::Shared);
        assert!(first.check().is_ok() && !first.compare(Some(other)) && first.check().is_ok());
        let alone = taken(Recording::Own);
        assert!(alone.check().is_ok() && !alone.compare(Some(other)) && alone.check().is_err());
    }

    #[test]
    fn an_order_holds_for_one_origin() {
        let record = IdentityRecord::new(Creation::Ordered);
        record.remember(OriginId::new(1), "a").unwrap();
        let other = Place::Origin(OriginId::new(2));
        assert_eq!(record.judge(other), Verdict::Take(OriginId::new(2)));
        record.take(OriginId::new(2));
        for place in [Place::Empty, Place::Origin(OriginId::new(3))] {
            assert!(matches!(record.judge(place), Verdict::Refuse(_)), "{place:?}");
        }
    }
}
