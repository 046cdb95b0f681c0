//! Things by number, where a number that was given back never means the next thing.

/// The number of a thing: how often its place was used before, and the place.
pub type Key = u64;

struct Place<T> {
    version: u32,
    thing: Option<T>,
}

/// Holds things by versioned numbers.
pub struct Slab<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Keep the thing; its number, which is never 0.
    pub fn insert(&mut self, thing: T) -> Key {
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { version: 0, thing: None });
            (self.places.len() - 1) as u32
        });
        let place = &mut self.places[at as usize];
        place.version = place.version.wrapping_add(1).max(1);
        place.thing = Some(thing);
        u64::from(place.version) << 32 | u64::from(at)
    }

    #[inline(always)]
    pub fn get(&self, key: Key) -> Option<&T> {
        let place = self.places.get(key as u32 as usize)?;
        if u64::from(place.version) != key >> 32 {
            return None;
        }
        place.thing.as_ref()
    }

    #[inline(always)]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let place = self.places.get_mut(key as u32 as usize)?;
        if u64::from(place.version) != key >> 32 {
            return None;
        }
        place.thing.as_mut()
    }

    pub fn remove(&mut self, key: Key) -> Option<T> {
        self.get(key)?;
        self.free.push(key as u32);
        self.places[key as u32 as usize].thing.take()
    }

    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Hold nothing any more, and begin to count anew: nobody may have a number.  What it held.
    pub fn take_all(&mut self) -> Leftovers<T> {
        Leftovers(std::mem::take(self).places)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.places.iter().enumerate().filter_map(|(at, place)| {
            let thing = place.thing.as_ref()?;
            Some((u64::from(place.version) << 32 | at as u64, thing))
        })
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().filter_map(|place| place.thing.as_mut())
    }
}

/// Things without numbers, which are only to be dropped.
pub struct Leftovers<T>(Vec<Place<T>>);

impl<T> Leftovers<T> {
    /// Drop so many; false: none is left.
    pub fn drop_some(&mut self, things: usize) -> bool {
        self.0.truncate(self.0.len().saturating_sub(things));
        !self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_was_given_back_means_nothing() {
        let mut slab = Slab::default();
        let first = slab.insert("a");
        assert_eq!(Some("a"), slab.remove(first));
        let second = slab.insert("b");
        assert_ne!(first, second);
        assert_eq!(None, slab.get(first));
        assert_eq!(None, slab.remove(first));
        assert_eq!(Some(&"b"), slab.get(second));
        assert_eq!(1, slab.len());
        assert_eq!(None, slab.get(0));
    }

    #[test]
    fn what_was_taken_is_dropped_little_by_little() {
        let thing = std::rc::Rc::new(());
        let mut slab = Slab::default();
        for _ in 0..5 {
            slab.insert(thing.clone());
        }
        let mut left = slab.take_all();
        assert_eq!((0, 6), (slab.len(), std::rc::Rc::strong_count(&thing)));
        assert!(left.drop_some(3));
        assert_eq!(3, std::rc::Rc::strong_count(&thing));
        assert!(!left.drop_some(3));
        assert_eq!(1, std::rc::Rc::strong_count(&thing));
    }
}
