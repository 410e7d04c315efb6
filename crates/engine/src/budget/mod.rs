//! Divides one memory budget of a node between the objects in memory and the layers of shards.
//!
//! Both save service time: a hit in memory saves a retrieval, a layer makes each service of its shard
//! shorter. So bytes belong where they save most seconds of service per second. For the memory tier
//! that is the request rate × the share of requests that hit because of these bytes (from sampled reuse
//! distances, [`crate::node::MemoryUse`]) × the service time of a retrieval. For layers it is the shard's
//! request rate × what the layer takes off a service ([`crate::layers::Manager::wish`]). Every interval the
//! driver reports both, and [`Divider::observe`] answers with at most one [`Move`]:
//!
//! - **Layers grow** when a busy shard lacks bytes for its next layer: from bytes that nobody has, else from the
//!   memory tier if the layer saves [`Settings::factor`] times what the tier loses.
//! - **Objects grow** when the tier is full and more bytes would be hit: from bytes that nobody has, from
//!   bytes that the layers have not used for a while, else from the layer that folds first, if the tier gains
//!   [`Settings::factor`] times what the layer saves.
//! - **What saves nothing is given back**: bytes of layers that folded, and bytes of the memory tier
//!   that have saved nothing for [`Settings::idle`], down to [`Settings::objects_least`].
//!
//! **Never above the budget.** A move first lowers the giver's limit. The taker's limit rises only by bytes
//! that the giver neither holds nor may hold by the *reported* limits, so neither a driver that is late
//! nor a layer that a query still reads can take both together beyond the budget.
//!
//! **Bounded and without oscillation.** Values are averaged exponentially; a move begins after
//! its reason has held for [`Settings::settle`], proceeds by at most 1/16 of the budget an interval, and one
//! that takes back what the last one gave waits longer each time that this happens soon after. What is gained
//! and lost is compared over all bytes of the move, because a layer is gained or lost as a whole.
//!
//! **Cost.** Some microseconds an interval. **Limits.** A hit in the memory tier is valued by the service
//! of a retrieval, not by the waiting that it saves; a node whose devices are overloaded undervalues it.

#[cfg(test)]
mod tests;

use std::fmt;

use ground::window::{Nanos, SECOND};
use serde::{Deserialize, Serialize};

use crate::mutant::{self, Mutant};

/// The curve of the memory tier has a value at each multiple of 1/`PARTS` of the budget, 0 included.
pub const PARTS: u64 = 16;
/// Maximum time that a taking back waits, as a multiple of [`Settings::settle`].
const PATIENCE_MAX: u64 = 64;
/// A move that has not ended after so many times [`Settings::settle`] is given up: a layer is still read.
const STUCK_SETTLES: u64 = 12;

/// When bytes move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Maximum bytes of both together.
    pub bytes_max: u64,
    /// The memory tier has at least these bytes: when it starts, and when it is idle.
    pub objects_least: u64,
    /// Time between two decisions.
    pub interval: Nanos,
    /// Weight of the newest values in the averages, above 0 and at most 1.
    pub smoothing: f64,
    /// A taker saves at least this many times what the giver loses; above 1.
    pub factor: f64,
    /// Time for which the reason of a move has held before it begins.
    pub settle: Nanos,
    /// Time after which bytes of the memory tier that save nothing are given back.
    pub idle: Nanos,
    /// Seconds of service per second below which bytes save nothing.
    pub worth_s: f64,
}

/// A decision a second; an hour's load that changes is followed within half a minute.
impl Default for Settings {
    fn default() -> Self {
        Settings {
            bytes_max: 1 << 30,
            objects_least: 0,
            interval: SECOND,
            smoothing: 0.2,
            factor: 2.0,
            settle: 10 * SECOND,
            idle: 600 * SECOND,
            worth_s: 1e-5,
        }
    }
}

/// Who has bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Party {
    /// The memory tier of objects.
    Objects,
    /// The layers of shards.
    Layers,
    /// Nobody.
    Free,
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Party::Objects => "objects",
            Party::Layers => "layers",
            Party::Free => "unused memory",
        })
    }
}

/// The memory tier at the end of an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Objects {
    /// Bytes that it holds.
    pub held_bytes: u64,
    /// Its limit that is in force.
    pub bytes_max: u64,
    /// Seconds of service per second that memory of `i` / [`PARTS`] of the budget would save. A value that is
    /// not finite, or below the one before, counts as the one before.
    pub saved_s: Vec<f64>,
}

/// A layer to gain or to lose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lump {
    /// Its bytes; of a wish, those that are missing.
    pub bytes: u64,
    /// Seconds of service per second that it saves.
    pub saved_s: f64,
}

/// The layers of all shards at the end of an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Layers {
    /// Bytes that they hold: those being filled, and dropped ones that are still read, included.
    pub held_bytes: u64,
    /// Their limit that is in force.
    pub bytes_max: u64,
    /// Bytes that an operator fixed.
    pub least_bytes: u64,
    /// What a busy shard lacks for its next layer.
    pub wish: Option<Lump>,
    /// The layer that folds first.
    pub spare: Option<Lump>,
}

/// Bytes that change hands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Move {
    /// Who gives most of them; bytes that nobody has are taken first.
    pub from: Party,
    /// Who gets them.
    pub to: Party,
    /// The bytes.
    pub bytes: u64,
    /// Seconds of service per second that the taker saves by them.
    pub gain_s: f64,
    /// Seconds of service per second that the giver saved by them.
    pub loss_s: f64,
    /// Whether an operator fixed the bytes of the taker, whatever they save.
    pub fixed: bool,
}

fn saves(from: Party, to: Party, bytes: u64, [gain_s, loss_s]: [f64; 2]) -> Move {
    Move { from, to, bytes, gain_s, loss_s, fixed: false }
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (gain, loss) = (self.gain_s * 1e3, self.loss_s * 1e3);
        match self.to {
            _ if self.fixed => write!(f, "the bytes of layers were fixed"),
            Party::Free => write!(f, "they save {loss:.3} ms of service a second"),
            _ => write!(
                f,
                "they save {gain:.3} ms of service a second there, and {loss:.3} ms where they are"
            ),
        }
    }
}

/// The last move that took bytes from one party for the other, and how long taking back waits.
#[derive(Clone, Copy, Debug)]
struct Last {
    from: Party,
    to: Party,
    ended: Nanos,
    patience: u64,
}

impl Last {
    /// Whether a move takes back what this one gave: also from bytes that the taker gave back meanwhile.
    fn is_undone_by(&self, of: &Move) -> bool {
        match of.to {
            Party::Objects => self.to == Party::Layers && self.from == Party::Objects,
            Party::Layers => self.to == Party::Objects && of.from == Party::Objects,
            Party::Free => false,
        }
    }
}

/// A move under way.
#[derive(Clone, Debug)]
struct Moving {
    of: Move,
    begun: Nanos,
    /// Bytes that the giver still has to give up.
    left: u64,
    /// Bytes that were given up and not granted yet.
    owed: u64,
}

/// Divides the budget. It has no clock; callers pass the time.
///
/// ```
/// use engine::budget::{Divider, Layers, Lump, Objects, Party, Settings};
/// let settings = Settings { bytes_max: 1600, objects_least: 400, ..Settings::default() };
/// let mut divider = Divider::new(settings);
/// assert_eq!((divider.objects_bytes(), divider.layers_bytes()), (400, 0));
/// let objects = Objects { held_bytes: 0, bytes_max: 400, saved_s: vec![] };
/// let wish = Some(Lump { bytes: 100, saved_s: 0.5 });
/// let layers = Layers { wish, ..Layers::default() };
/// let moves: Vec<_> = (0..20)
///     .filter_map(|second| divider.observe(second * 1_000_000_000, &objects, &layers))
///     .collect();
/// assert_eq!((moves[0].from, moves[0].to, moves[0].bytes), (Party::Free, Party::Layers, 100));
/// divider.begin(20_000_000_000, moves[0].clone());
/// divider.observe(21_000_000_000, &objects, &layers);
/// assert_eq!((divider.objects_bytes(), divider.layers_bytes()), (400, 100));
/// ```
#[derive(Clone, Debug)]
pub struct Divider {
    settings: Settings,
    /// When the last interval ended; `None` before the first.
    decided: Option<Nanos>,
    objects: u64,
    layers: u64,
    /// Averages of the memory tier's curve.
    curve: Vec<f64>,
    moving: Option<Moving>,
    /// The move that is being considered: its giver and taker, and since when.
    considered: Option<(Party, Party, Nanos)>,
    last: Option<Last>,
    /// Nothing is proposed before: a proposal was refused.
    not_before: Nanos,
    /// When the layers last used all of their bytes.
    layers_used: Nanos,
    /// When the last bytes of the memory tier last saved something.
    objects_worth: Nanos,
    moved_bytes: u64,
}

impl Divider {
    /// Objects have their least bytes, and layers none. `bytes_max` is at least `objects_least`.
    pub fn new(settings: Settings) -> Divider {
        let objects = settings.objects_least.min(settings.bytes_max);
        Divider {
            settings,
            decided: None,
            objects,
            layers: 0,
            curve: Vec::new(),
            moving: None,
            considered: None,
            last: None,
            not_before: 0,
            layers_used: 0,
            objects_worth: 0,
            moved_bytes: 0,
        }
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Bytes that the memory tier may hold.
    pub fn objects_bytes(&self) -> u64 {
        self.objects
    }

    /// Bytes that layers may hold.
    pub fn layers_bytes(&self) -> u64 {
        self.layers
    }

    /// Bytes that were moved since the start.
    pub fn moved_bytes(&self) -> u64 {
        self.moved_bytes
    }

    /// The bytes of which the driver reports what they would save, for [`Objects::saved_s`].
    pub fn sizes(&self) -> Vec<u64> {
        let of = |part: u64| {
            (u128::from(self.settings.bytes_max) * u128::from(part)) / u128::from(PARTS)
        };
        (0..=PARTS).map(|part| of(part) as u64).collect()
    }

    /// Seconds of service per second that the memory tier would save with so many bytes.
    pub fn saved_s(&self, bytes: u64) -> f64 {
        let each = self.settings.bytes_max as f64 / PARTS as f64;
        let at = if each > 0.0 { bytes as f64 / each } else { 0.0 };
        let whole = at.min(PARTS as f64) as usize;
        let Some(last) = self.curve.last() else { return 0.0 };
        match (self.curve.get(whole), self.curve.get(whole + 1)) {
            (Some(low), Some(high)) => low + (high - low) * (at - whole as f64),
            _ => *last,
        }
    }

    /// Takes what both hold and save; returns a move to make, at most one and none until an interval has ended.
    /// The caller answers with [`Divider::begin`] or [`Divider::refuse`]. Advances a move under way, so that
    /// [`Divider::objects_bytes`] and [`Divider::layers_bytes`] are other limits after it.
    pub fn observe(&mut self, now: Nanos, objects: &Objects, layers: &Layers) -> Option<Move> {
        let Some(decided) = self.decided else {
            self.decided = Some(now);
            (self.layers_used, self.objects_worth) = (now, now);
            return None;
        };
        if now < decided.saturating_add(self.settings.interval) {
            return None;
        }
        self.decided = Some(now);
        self.learn(now, objects, layers);
        if self.moving.is_some() {
            self.advance(now, objects, layers);
            return None;
        }
        if now < self.not_before {
            return None;
        }
        let wanted = self.wanted_move(now, objects, layers);
        self.settled(now, wanted)
    }

    /// The move under way.
    pub fn moving(&self) -> Option<&Move> {
        self.moving.as_ref().map(|moving| &moving.of)
    }

    /// Begins a move that [`Divider::observe`] returned.
    pub fn begin(&mut self, now: Nanos, of: Move) {
        let free = self.free();
        let owed = if of.to == Party::Free { 0 } else { of.bytes.min(free) };
        let (left, begun) = (of.bytes - owed, now);
        let left = if of.from == Party::Free { 0 } else { left };
        self.considered = None;
        self.moving = Some(Moving { of, begun, left, owed });
    }

    /// A move is not made: for a while none is returned.
    pub fn refuse(&mut self, now: Nanos) {
        self.considered = None;
        self.not_before = now.saturating_add(self.settings.settle.saturating_mul(6));
    }

    /// Bytes that nobody may hold.
    fn free(&self) -> u64 {
        self.settings.bytes_max.saturating_sub(self.objects.saturating_add(self.layers))
    }

    fn step(&self) -> u64 {
        (self.settings.bytes_max / PARTS).max(1)
    }

    fn learn(&mut self, now: Nanos, objects: &Objects, layers: &Layers) {
        self.curve.resize(PARTS as usize + 1, 0.0);
        let (weight, mut most) = (self.settings.smoothing, 0.0);
        for (i, value) in self.curve.iter_mut().enumerate() {
            let newest = objects.saved_s.get(i).copied().unwrap_or(most);
            most = if newest.is_finite() { newest.max(most) } else { most };
            *value += weight * (most - *value);
        }
        if layers.held_bytes >= self.layers || layers.wish.is_some() {
            self.layers_used = now;
        }
        if self.loss_s(self.step()) >= self.settings.worth_s / 2.0 {
            self.objects_worth = now;
        }
    }

    /// What the memory tier saves less with so many bytes less.
    fn loss_s(&self, bytes: u64) -> f64 {
        self.saved_s(self.objects) - self.saved_s(self.objects.saturating_sub(bytes))
    }

    /// What it saves more with so many bytes more.
    fn gain_s(&self, bytes: u64) -> f64 {
        self.saved_s(self.objects.saturating_add(bytes)) - self.saved_s(self.objects)
    }

    /// The move that is to be made if it is still wanted when it has settled.
    fn wanted_move(&self, now: Nanos, objects: &Objects, layers: &Layers) -> Option<Move> {
        let free = self.free();
        let to_layers = self.wanted_by_layers(free, layers);
        to_layers
            .or_else(|| self.wanted_by_objects(now, free, objects, layers))
            .or_else(|| self.given_back(now, layers))
    }

    fn wanted_by_layers(&self, free: u64, layers: &Layers) -> Option<Move> {
        let fixed = layers.least_bytes.saturating_sub(self.layers);
        let spare = self.objects.saturating_sub(self.settings.objects_least);
        if fixed > 0 {
            // As many as there are.
            let bytes = fixed.min(free.saturating_add(spare));
            let from = if bytes > free { Party::Objects } else { Party::Free };
            let loss_s = self.loss_s(bytes.saturating_sub(free));
            let of = Move { from, to: Party::Layers, bytes, gain_s: 0.0, loss_s, fixed: true };
            return Some(of).filter(|of| of.bytes > 0);
        }
        let Lump { bytes, saved_s: gain_s } = layers.wish.filter(|wish| wish.bytes > 0)?;
        let missing = bytes.saturating_sub(free);
        if missing > spare || !gain_s.is_finite() || gain_s < self.settings.worth_s {
            return None;
        }
        let loss_s = self.loss_s(missing);
        let from = if missing > 0 { Party::Objects } else { Party::Free };
        let of = saves(from, Party::Layers, bytes, [gain_s, loss_s]);
        (gain_s >= self.factor() * loss_s).then_some(of)
    }

    fn wanted_by_objects(
        &self,
        now: Nanos,
        free: u64,
        objects: &Objects,
        layers: &Layers,
    ) -> Option<Move> {
        // A tier that has room yet needs no more.
        if objects.held_bytes < self.objects - self.objects / 8 {
            return None;
        }
        let to = Party::Objects;
        // Of the bytes that nobody has, as many as save most for each: a loop over many objects is hit only once
        // all of them fit.
        let mut best: Option<Move> = None;
        for part in 1..=PARTS {
            let bytes = self.step().saturating_mul(part).min(free);
            let gain_s = self.gain_s(bytes);
            let each = |of: &Move| of.gain_s / of.bytes as f64;
            if bytes > 0
                && gain_s >= self.settings.worth_s
                // Of equal ones the most.
                && best.as_ref().is_none_or(|best| gain_s / bytes as f64 >= 0.999 * each(best))
            {
                best = Some(saves(Party::Free, to, bytes, [gain_s, 0.0]));
            }
        }
        if best.is_some() {
            return best;
        }
        let room = self.layers.saturating_sub(layers.held_bytes.max(layers.least_bytes));
        let is_unused = now >= self.layers_used.saturating_add(self.settings.settle);
        let from = Party::Layers;
        if room > 0 && is_unused {
            let gain_s = self.gain_s(room);
            let of = saves(from, to, room, [gain_s, 0.0]);
            if gain_s >= self.settings.worth_s {
                return Some(of);
            }
        }
        let Lump { bytes, saved_s: loss_s } = layers.spare.filter(|spare| spare.bytes > 0)?;
        let bytes = bytes.saturating_add(room);
        let gain_s = self.gain_s(bytes);
        let of = saves(from, to, bytes, [gain_s, loss_s]);
        let enough = gain_s >= self.settings.worth_s && gain_s >= self.factor() * loss_s;
        (enough && loss_s.is_finite() && self.layers >= layers.least_bytes.saturating_add(bytes))
            .then_some(of)
    }

    fn given_back(&self, now: Nanos, layers: &Layers) -> Option<Move> {
        let room = self.layers.saturating_sub(layers.held_bytes.max(layers.least_bytes));
        let unused = self.layers_used.saturating_add(self.settings.settle.saturating_mul(6));
        if room > 0 && now >= unused {
            return Some(saves(Party::Layers, Party::Free, room, [0.0; 2]));
        }
        if now < self.objects_worth.saturating_add(self.settings.idle) {
            return None;
        }
        let spare = self.objects.saturating_sub(self.settings.objects_least);
        let worthless = |bytes: &u64| self.loss_s(*bytes) < self.settings.worth_s / 2.0;
        let bytes = (1..=PARTS).map(|part| self.step().saturating_mul(part).min(spare));
        let bytes = bytes.filter(worthless).max().filter(|bytes| *bytes > 0)?;
        let loss_s = self.loss_s(bytes);
        Some(saves(Party::Objects, Party::Free, bytes, [0.0, loss_s]))
    }

    fn factor(&self) -> f64 {
        if mutant::is(Mutant::BudgetWithoutMargin) { 0.5 } else { self.settings.factor }
    }

    /// The move, once one between the same parties has been wanted for long enough.
    fn settled(&mut self, now: Nanos, wanted: Option<Move>) -> Option<Move> {
        let Some(of) = wanted else {
            self.considered = None;
            return None;
        };
        let pair = (of.from, of.to);
        let since = match self.considered {
            Some((from, to, since)) if (from, to) == pair => since,
            _ => {
                self.considered = Some((of.from, of.to, now));
                now
            }
        };
        let settle = self.settings.settle;
        let waits = self.last.filter(|last| last.is_undone_by(&of)).is_some_and(|last| {
            now < last.ended.saturating_add(settle.saturating_mul(last.patience))
        });
        let waits = waits && !mutant::is(Mutant::BudgetWithoutMargin);
        (now >= since.saturating_add(settle) && !waits).then_some(of)
    }

    /// One interval of the move under way: the giver's limit falls, and the taker's rises by what is free for
    /// certain.
    fn advance(&mut self, now: Nanos, objects: &Objects, layers: &Layers) {
        let step = self.step();
        let Some(moving) = &mut self.moving else { return };
        let bytes = moving.left.min(step);
        let given = match moving.of.from {
            Party::Objects => {
                let spare = self.objects.saturating_sub(self.settings.objects_least);
                let given = bytes.min(spare);
                self.objects -= given;
                given
            }
            Party::Layers => {
                let given = bytes.min(self.layers);
                self.layers -= given;
                given
            }
            Party::Free => 0,
        };
        moving.left -= bytes;
        if moving.of.to != Party::Free {
            moving.owed += given;
        }
        self.moved_bytes = self.moved_bytes.saturating_add(given);
        let taken = if mutant::is(Mutant::BudgetRaisedBeforeFreed) {
            u128::from(self.objects) + u128::from(self.layers)
        } else {
            let objects = self.objects.max(objects.held_bytes).max(objects.bytes_max);
            let layers = self.layers.max(layers.held_bytes).max(layers.bytes_max);
            u128::from(objects) + u128::from(layers)
        };
        let free = u128::from(self.settings.bytes_max).saturating_sub(taken);
        let granted = moving.owed.min(step).min(u64::try_from(free).unwrap_or(u64::MAX));
        match moving.of.to {
            Party::Objects => self.objects += granted,
            Party::Layers => self.layers += granted,
            Party::Free => {}
        }
        moving.owed -= granted;
        if moving.of.from == Party::Free {
            self.moved_bytes = self.moved_bytes.saturating_add(granted);
        }
        let over = moving.begun.saturating_add(self.settings.settle.saturating_mul(STUCK_SETTLES));
        if (moving.left == 0 && moving.owed == 0) || now >= over {
            let of = moving.of.clone();
            self.ended(now, &of);
        }
    }

    fn ended(&mut self, now: Nanos, of: &Move) {
        self.moving = None;
        (self.layers_used, self.objects_worth) = (now, now);
        let back = self.last.is_some_and(|last| last.is_undone_by(of));
        if of.to == Party::Free || (of.from == Party::Free && !back) {
            return;
        }
        let settle = self.settings.settle;
        let patience = match self.last {
            Some(last) if back => {
                let soon = settle.saturating_mul(last.patience.saturating_mul(8));
                let is_soon = now < last.ended.saturating_add(soon);
                if is_soon { (last.patience * 2).min(PATIENCE_MAX) } else { 1 }
            }
            Some(last) => last.patience,
            None => 1,
        };
        self.last = Some(Last { from: of.from, to: of.to, ended: now, patience });
    }
}
