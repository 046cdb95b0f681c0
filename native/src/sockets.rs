//! The sockets of ports, and the Python objects that they belong to.

use std::collections::VecDeque;
use std::os::fd::RawFd;

use msgnode_plane::slab::Key;
use pyo3::prelude::*;

/// The socket of one port.
pub struct Socket {
    key: Key,
    /// -1: Python gives the plane what comes, and sends what leaves.
    pub fd: RawFd,
    pub owner: Py<PyAny>,
    /// May what leaves go straight to the socket?  Not while Twisted has something to send first.
    pub direct: bool,
    due: bool,
}

/// The sockets of all ports, and those that are to be read next.
#[derive(Default)]
pub struct Sockets {
    all: Vec<Option<Socket>>,
    due: VecDeque<Key>,
}

impl Sockets {
    pub fn add(&mut self, key: Key, fd: RawFd, owner: Py<PyAny>) {
        let at = key as u32 as usize;
        if self.all.len() <= at {
            self.all.resize_with(at + 1, || None);
        }
        self.all[at] = Some(Socket { key, fd, owner, direct: fd >= 0, due: false });
    }

    #[inline]
    pub fn get(&self, key: Key) -> Option<&Socket> {
        self.all.get(key as u32 as usize)?.as_ref().filter(|socket| socket.key == key)
    }

    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut Socket> {
        self.all.get_mut(key as u32 as usize)?.as_mut().filter(|socket| socket.key == key)
    }

    pub fn remove(&mut self, key: Key) -> Option<Socket> {
        self.get(key)?;
        self.all[key as u32 as usize].take()
    }

    pub fn owners(&self) -> impl Iterator<Item = &Py<PyAny>> {
        self.all.iter().flatten().map(|socket| &socket.owner)
    }

    pub fn clear(&mut self) -> Vec<Option<Socket>> {
        self.due.clear();
        std::mem::take(&mut self.all)
    }

    // -- whose turn it is --------------------------------------------------------

    /// Serve the port, after all that are due already.
    pub fn put_last(&mut self, key: Key) {
        if let Some(socket) = self.get_mut(key) {
            if !std::mem::replace(&mut socket.due, true) {
                self.due.push_back(key);
            }
        }
    }

    /// The port that has waited longest; it is not due any more.
    pub fn take_first(&mut self) -> Option<Key> {
        loop {
            let key = self.due.pop_front()?;
            if let Some(socket) = self.get_mut(key) {
                socket.due = false;
                return Some(key);
            }
        }
    }

    pub fn is_any_due(&self) -> bool {
        !self.due.is_empty()
    }
}
