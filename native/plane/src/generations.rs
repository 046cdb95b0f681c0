//! Generations: what was decided before a change is known to be old, at the cost of one comparison.
//!
//! Each address has a slot by its hash.  A change of who is bound to an address, or of who may send from it,
//! moves its slot on; a change of everything moves the epoch on.  Two addresses may share a slot: then
//! too much is decided again, and never too little.
//!
//! A client hears all that is below its name at a `/`.  So a decision about a recipient depends on all names
//! that its address is below.  Names have slots of their own: a client that comes or goes changes that of its
//! name, and a binding, which any client may change for any address, is heard at that address alone.

use std::hash::BuildHasher;

use foldhash::quality::RandomState;

/// Slots of addresses; there are as many of names behind them.
pub const SLOTS: usize = 1 << 16;
/// Names that an address may be below, itself included: as many as msgnode/bus/routing_table.py looks for.
const MAX_SEGMENTS: usize = 32;

/// When a decision was made that depends on some addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    epoch: u64,
    slots: Box<[(u32, u32)]>,
}

/// The current generation of each slot, and the epoch of all.
pub struct Generations {
    epoch: u64,
    slots: Box<[u32]>,
    addresses: RandomState,
    names: RandomState,
}

impl Default for Generations {
    fn default() -> Self {
        Generations {
            epoch: 0,
            slots: vec![0; 2 * SLOTS].into_boxed_slice(),
            addresses: RandomState::default(),
            names: RandomState::default(),
        }
    }
}

impl Generations {
    fn slot_of_address(&self, address: &[u8]) -> usize {
        self.addresses.hash_one(address) as usize % SLOTS
    }

    fn slot_of_name(&self, name: &[u8]) -> usize {
        SLOTS + self.names.hash_one(name) as usize % SLOTS
    }

    /// What a decision about messages between these addresses is marked with now.
    pub fn stamp(&self, from: &[u8], to: &[u8]) -> Stamp {
        let addresses = [from, to].into_iter().map(|address| self.slot_of_address(address));
        let names = names_above(to).map(|name| self.slot_of_name(name));
        let slots = addresses.chain(names).map(|slot| (slot as u32, self.slots[slot]));
        Stamp { epoch: self.epoch, slots: slots.collect() }
    }

    /// Has nothing changed since?
    #[inline(always)]
    pub fn holds(&self, stamp: &Stamp) -> bool {
        stamp.epoch == self.epoch
            && stamp.slots.iter().all(|(slot, generation)| self.slots[*slot as usize] == *generation)
    }

    /// Something has changed at this address.
    pub fn change(&mut self, address: &[u8]) {
        self.move_on(self.slot_of_address(address));
    }

    /// Who hears everything at and below this name has changed.
    pub fn change_name(&mut self, name: &[u8]) {
        self.change(name);
        self.move_on(self.slot_of_name(name));
    }

    fn move_on(&mut self, slot: usize) {
        match self.slots[slot].checked_add(1) {
            Some(next) => self.slots[slot] = next,
            None => {
                // A stamp of this slot's first generation would hold again.
                self.slots[slot] = 0;
                self.change_all();
            }
        }
    }

    /// Something has changed on which any decision may depend.
    pub fn change_all(&mut self) {
        self.epoch += 1;
    }
}

/// The names that the address is below, the longest first.
fn names_above(address: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(shorter(address), |name| shorter(name)).take(MAX_SEGMENTS - 1)
}

fn shorter(name: &[u8]) -> Option<&[u8]> {
    let cut = memchr::memrchr(b'/', name)?;
    (cut > 0).then(|| &name[..cut])
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: &[u8] = b"r://h/ann/x";
    const TO: &[u8] = b"r://h/bob/x/y";

    #[test]
    fn a_change_of_a_name_is_one_of_all_that_is_below_it() {
        let mut generations = Generations::default();
        let stamp = generations.stamp(FROM, TO);
        for other in ["r://h/ann", "r://h/bo", "r://h/bob/x/y/z", "r://h/bob/"] {
            generations.change_name(other.as_bytes());
            assert!(generations.holds(&stamp), "{other}");
        }
        for name in ["r://h/bob/x/y", "r://h/bob/x", "r://h/bob", "r://h", "r:/", "r:", "r://h/ann/x"] {
            let stamp = generations.stamp(FROM, TO);
            generations.change_name(name.as_bytes());
            assert!(!generations.holds(&stamp), "{name}");
        }
        assert_eq!(MAX_SEGMENTS, 1 + names_above(&b"a/".repeat(100)).count());
    }

    #[test]
    fn a_binding_is_one_of_its_address_alone() {
        let mut generations = Generations::default();
        let stamp = generations.stamp(FROM, TO);
        for other in ["r://h/ann", "r://h/bob/x/y/z", "r://h/bob/x", "r://h/bob", "r://h", "r:/", "r:"] {
            generations.change(other.as_bytes());
            assert!(generations.holds(&stamp), "{other}");
        }
        for address in [FROM, TO] {
            let stamp = generations.stamp(FROM, TO);
            generations.change(address);
            assert!(!generations.holds(&stamp));
        }
    }

    #[test]
    fn a_stamp_holds_until_one_of_its_addresses_changes() {
        let mut generations = Generations::default();
        let stamp = generations.stamp(b"a", b"b");
        assert!(generations.holds(&stamp));
        generations.change(b"b");
        assert!(!generations.holds(&stamp));
        assert!(generations.holds(&generations.stamp(b"a", b"b")));
    }

    #[test]
    fn a_change_of_everything_ends_all_stamps() {
        let mut generations = Generations::default();
        let stamp = generations.stamp(b"a", b"a");
        generations.change_all();
        assert!(!generations.holds(&stamp));
    }

    #[test]
    fn a_slot_that_wraps_ends_all_stamps() {
        let mut generations = Generations::default();
        let stamp = generations.stamp(b"a", b"b");
        let slot = generations.slot_of_address(b"a");
        generations.slots[slot] = u32::MAX;
        generations.change(b"a");
        assert_eq!(0, generations.slots[slot]);
        assert!(!generations.holds(&stamp));
    }
}
