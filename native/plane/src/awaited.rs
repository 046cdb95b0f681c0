//! Responses that somebody waits for outside of all sessions: Python hands them over.

use std::collections::HashSet;

type Address = Box<[u8]>;
type Id = Box<[u8]>;

/// The address and id of each request whose response is awaited.
///
/// An id is kept as it stands in a message: a number in digits, a text with its quotes.
#[derive(Default)]
pub struct Awaited {
    waiting: HashSet<(Address, Id)>,
}

impl Awaited {
    pub fn add(&mut self, address: &[u8], id: &[u8]) {
        self.waiting.insert((address.into(), id.into()));
    }

    pub fn remove(&mut self, address: &[u8], id: &[u8]) {
        self.waiting.remove(&(Box::from(address), Box::from(id)));
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Is this message one of them?
    #[inline]
    pub fn takes(&self, kind: &[u8], to: &[u8], id: &[u8]) -> bool {
        !self.waiting.is_empty()
            && kind.eq_ignore_ascii_case(b"response")
            && self.waiting.contains(&(Box::from(to), Box::from(id)))
    }
}
