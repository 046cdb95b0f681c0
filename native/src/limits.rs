//! Limits of the plane: rounds, rates, and what policies count.

use msgnode_plane::clock::Clock;
use msgnode_plane::counters::Tally;
use msgnode_plane::slab::Key;
use msgnode_plane::token_bucket::TokenBucket;
use pyo3::prelude::*;

use crate::state::Plane;

#[pymethods]
impl Plane {
    /// Bytes held for one connection, and of one round; how long a round lasts, and how long to wait for more
    /// where reads hold several messages (0: not at all).
    fn set_limits(
        &self,
        unsent_bytes: usize,
        round_bytes: usize,
        round_microseconds: u64,
        gather_microseconds: u64,
    ) {
        let state = &mut *self.state();
        state.core.limits.unsent_bytes = unsent_bytes;
        state.core.limits.round_bytes = round_bytes;
        state.core.limits.round_nanoseconds = round_microseconds * 1000;
        state.gather = gather_microseconds * 1000;
    }

    // -- rates -------------------------------------------------------------------

    /// A full token bucket of so many messages and bytes a second (0: any number); its number.
    fn add_bucket(&self, messages: f64, bytes: f64) -> Key {
        let core = &mut self.state().core;
        let now = core.clock.seconds();
        core.buckets.insert(TokenBucket::new(messages, bytes, now))
    }

    fn remove_bucket(&self, bucket: Key) {
        self.state().core.buckets.remove(bucket);
    }

    /// Take a message of that size from all of these; False: one is empty, and nothing was taken.
    fn draw(&self, buckets: Vec<Key>, size: usize) -> bool {
        let core = &mut self.state().core;
        let (now, all) = (core.clock.seconds(), &mut core.buckets);
        // Each is filled up to now, whatever the others have.
        let rooms = buckets.iter().filter_map(|bucket| all.get_mut(*bucket).map(|each| each.has_room(now)));
        if rooms.fold(false, |any_empty, has_room| any_empty | !has_room) {
            return false;
        }
        for bucket in &buckets {
            if let Some(bucket) = all.get_mut(*bucket) {
                bucket.take(size);
            }
        }
        true
    }

    /// Seconds until something may be taken from it.
    fn wait(&self, bucket: Key) -> f64 {
        let core = &mut self.state().core;
        let now = core.clock.seconds();
        core.buckets.get_mut(bucket).map_or(0.0, |bucket| bucket.wait(now))
    }

    /// Has nothing been taken for so many seconds, so that it is as good as a new one?
    fn is_idle(&self, bucket: Key, seconds: f64) -> bool {
        let core = &self.state().core;
        core.buckets.get(bucket).is_none_or(|bucket| bucket.is_idle(core.clock.seconds(), seconds))
    }

    /// Have buckets go by this time, in seconds, from now on: for tests with a clock.
    fn stop_clock(&self, now: f64) {
        self.state().core.clock = Clock::Stopped(now);
    }

    // -- policies ------------------------------------------------------------------

    /// One more number to count decisions by.
    fn add_tally(&self) -> usize {
        let tallies = &mut self.state().core.tallies;
        tallies.push(Tally::default());
        tallies.len() - 1
    }

    /// Count by none of these numbers any more; flows that count by them have to end before.
    fn forget_tallies(&self) {
        self.state().core.tallies.clear();
    }

    /// What was counted since the last call: number, how often, and when last, in nanoseconds since 1970.
    fn take_tallies(&self) -> Vec<(usize, u64, u64)> {
        let tallies = &mut self.state().core.tallies;
        let counted = tallies.iter_mut().enumerate().filter(|(_, tally)| tally.hits > 0);
        counted
            .map(|(at, tally)| {
                let Tally { hits, last } = std::mem::take(tally);
                (at, hits, last)
            })
            .collect()
    }

    /// The share of permits that is written to the decision log.
    fn set_sample_share(&self, share: f64) {
        self.state().core.sample.share = share;
    }

    /// Count one permit; is it the one that is written?
    fn is_sample_due(&self) -> bool {
        self.state().core.sample.is_due()
    }
}
