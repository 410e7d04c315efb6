//! Pools that take the place of others while clients go on.

use super::*;

impl World {
    /// Other settings take the place of those in use, once no request is under way; none begins meanwhile.
    pub(super) fn reload(&mut self, now: Nanos) {
        self.reloading = !self.pools.requests.is_empty() || !self.flushes.are_over();
        if self.reloading {
            return self.schedule_at(now + 500 * US, Happening::Reload);
        }
        // Sometimes only the same again.
        let distributions = [Distribution::Ketama, Distribution::Modula, Distribution::Consistent];
        let distribution = distributions[self.random.random_range(0..3)];
        let servers: Vec<Server> = self.settings.servers[..OWN].to_vec();
        let ring = Ketama::new(distribution, Hash::Fnv1a64, None, &servers).unwrap();
        self.settings.pools[0].ring = ring;
        let mut next = Pools::new(self.settings.clone(), now);
        next.inherit(&self.pools);
        self.pools = next;
        self.reloads += 1;
        self.tell(now, Event::Tick);
    }
}

/// A failure moves a key and leaves a value there; so does a ring that becomes another. Pools used to forget both when others
/// took their place, and a later failure had the old values read.
#[test]
fn pools_that_take_the_place_of_others_know_where_keys_were() {
    #[expect(clippy::disallowed_methods, reason = "a test, which is run with more seeds by hand")]
    let seeds = std::env::var("SIM_SEEDS").ok().and_then(|text| text.parse().ok());
    let (mut reloads, mut hits) = (0, 0);
    for seed in 0..seeds.unwrap_or(900) {
        let mut world = World::new(Plan::reloading(seed));
        world.run();
        (reloads, hits) = (reloads + world.reloads, hits + world.hits);
    }
    assert!(reloads > 1000 && hits > 1000, "{reloads} {hits}");
}
