//! What has begun to come and not ended, counted for its host and for the node.
//!
//! Python counts the same for what it keeps itself (msgnode/sessions/limits/partial_input.py): there is one
//! account for both.

use std::collections::HashMap;

/// Bytes of each connection that nobody counts.
pub const FREE: usize = 4096;

/// The account of partial input; a limit of 0 is none.
#[derive(Default)]
pub struct PartialInput {
    pub most: u64,
    pub most_of_host: u64,
    pub bytes: u64,
    hosts: HashMap<Box<str>, u64>,
}

impl PartialInput {
    /// What is counted of this host; "" stands for connections without one.
    pub fn of_host(&self, host: &str) -> u64 {
        self.hosts.get(host).copied().unwrap_or(0)
    }

    /// Bytes of the host that has most.
    pub fn most_held(&self) -> u64 {
        self.hosts.values().copied().max().unwrap_or(0)
    }

    /// May a connection of this host have so many bytes pending, which had so many before?  Then it is counted.
    pub fn grow(&mut self, host: &str, before: usize, size: usize) -> bool {
        let more = size.saturating_sub(FREE) as i64 - before.saturating_sub(FREE) as i64;
        if more > 0 {
            let more = more as u64;
            let of_host = self.of_host(host);
            if self.most > 0 && self.bytes + more > self.most {
                return false;
            }
            if !host.is_empty() && self.most_of_host > 0 && of_host + more > self.most_of_host {
                return false;
            }
        }
        self.charge(host, more);
        true
    }

    /// The same; where it may not have so many, nothing of it is counted.  `always`: it may have any number.
    pub fn recount(&mut self, host: &str, before: usize, size: usize, always: bool) -> bool {
        if always {
            self.charge(host, size.saturating_sub(FREE) as i64 - before.saturating_sub(FREE) as i64);
            return true;
        }
        let fits = self.grow(host, before, size);
        if !fits {
            self.grow(host, before, 0);
        }
        fits
    }

    /// Count so many bytes more, or less.
    pub fn charge(&mut self, host: &str, more: i64) {
        if more == 0 {
            return;
        }
        self.bytes = self.bytes.saturating_add_signed(more);
        if host.is_empty() {
            return;
        }
        let left = self.of_host(host).saturating_add_signed(more);
        if left == 0 {
            self.hosts.remove(host);
        } else {
            self.hosts.insert(host.into(), left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_above_the_free_ones_count_for_host_and_node() {
        let mut partial = PartialInput { most: 10_000, most_of_host: 6000, ..Default::default() };
        assert!(partial.grow("a", 0, FREE));
        assert_eq!(0, partial.bytes);
        assert!(partial.grow("a", FREE, FREE + 6000));
        assert!(!partial.grow("a", 0, FREE + 1), "more than one host may have");
        assert!(partial.grow("b", 0, FREE + 4000));
        assert!(!partial.grow("", 0, FREE + 1), "more than all may have");
        assert!(partial.grow("a", FREE + 6000, 0));
        assert_eq!((4000, 0, 4000), (partial.bytes, partial.of_host("a"), partial.most_held()));
    }
}
