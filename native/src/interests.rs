//! Which descriptors are watched, for whom and for what: the plane's ports, and whatever Twisted registers.

use std::os::fd::{OwnedFd, RawFd};

use msgnode_plane::slab::Key;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{eventfd, EventfdFlags};
use rustix::io::{Errno, Result};

use crate::descriptor::borrow;

/// One descriptor; a port may be read by the plane and written by Twisted.
#[derive(Clone, Copy, Default)]
struct Interest {
    port: Key, // 0: none
    twisted: u32,
    is_twisted: bool,   // Twisted may register without any event
    registrations: u32, // how often Twisted has
    registered: u32,
    is_registered: bool,
}

/// An event of a descriptor, for the plane's port, for Twisted, or for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    pub port: Option<Key>,
    pub twisted: Option<TwistedEvent>,
}

/// An event of a descriptor for what Twisted had registered when it came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TwistedEvent {
    pub fd: RawFd,
    pub flags: u32,
    registration: u32,
}

/// The epoll object, and what is registered there.
pub struct Interests {
    all: Vec<Interest>,
}

const NOBODY: u64 = u64::MAX; // as a descriptor: -1
const READ: u32 = EventFlags::IN.bits();
const WRITE: u32 = EventFlags::OUT.bits();

pub fn create() -> Result<OwnedFd> {
    epoll::create(CreateFlags::CLOEXEC)
}

/// A descriptor that makes the epoll object readable, once for each write.
pub fn create_wakeup(epoll: &OwnedFd) -> Result<OwnedFd> {
    let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    epoll::add(epoll, &wakeup, EventData::new_u64(NOBODY), EventFlags::IN | EventFlags::ET)?;
    Ok(wakeup)
}

impl Interests {
    pub fn new() -> Self {
        Interests { all: Vec::new() }
    }

    fn entry(&mut self, fd: RawFd) -> Result<&mut Interest> {
        let at = usize::try_from(fd).map_err(|_| Errno::BADF)?;
        if self.all.len() <= at {
            self.all.resize(at + 1, Interest::default());
        }
        Ok(&mut self.all[at])
    }

    /// Read this port here; None: no more.
    pub fn read_port(&mut self, epoll: &OwnedFd, fd: RawFd, port: Option<Key>) -> Result<()> {
        let entry = self.entry(fd)?;
        let before = *entry;
        entry.port = port.unwrap_or(0);
        self.update(epoll, fd, before)
    }

    /// Twisted wants to know of these events.
    pub fn register(&mut self, epoll: &OwnedFd, fd: RawFd, events: u32) -> Result<()> {
        let entry = self.entry(fd)?;
        if entry.is_twisted {
            return Err(Errno::EXIST);
        }
        let before = *entry;
        (entry.is_twisted, entry.twisted) = (true, events);
        entry.registrations = entry.registrations.wrapping_add(1);
        self.update(epoll, fd, before)
    }

    pub fn modify(&mut self, epoll: &OwnedFd, fd: RawFd, events: u32) -> Result<()> {
        let entry = self.entry(fd)?;
        if !entry.is_twisted {
            return Err(Errno::NOENT);
        }
        let before = *entry;
        entry.twisted = events;
        self.update(epoll, fd, before)
    }

    pub fn unregister(&mut self, epoll: &OwnedFd, fd: RawFd) -> Result<()> {
        let entry = self.entry(fd)?;
        if !entry.is_twisted {
            return Err(Errno::NOENT);
        }
        let before = *entry;
        (entry.is_twisted, entry.twisted) = (false, 0);
        self.update(epoll, fd, before)
    }

    /// Tell the kernel; if it refuses, everything is as before.
    fn update(&mut self, epoll: &OwnedFd, fd: RawFd, before: Interest) -> Result<()> {
        let entry = self.entry(fd)?;
        let is_wanted = entry.port != 0 || entry.is_twisted;
        let events = entry.twisted | if entry.port != 0 { READ } else { 0 };
        let flags = EventFlags::from_bits_retain(events);
        let data = EventData::new_u64(fd as u64);
        let done = match (entry.is_registered, is_wanted) {
            (false, false) => Ok(()),
            (false, true) => epoll::add(epoll, borrow(fd)?, data, flags),
            (true, true) if entry.registered == events => Ok(()),
            (true, true) => match epoll::modify(epoll, borrow(fd)?, data, flags) {
                // It was closed, and is another descriptor now.
                Err(Errno::NOENT) => epoll::add(epoll, borrow(fd)?, data, flags),
                done => done,
            },
            // A descriptor that was closed has left by itself.
            (true, false) => match epoll::delete(epoll, borrow(fd)?) {
                Err(Errno::BADF | Errno::NOENT) => Ok(()),
                done => done,
            },
        };
        match done {
            Ok(()) => {
                entry.registered = events;
                entry.is_registered = is_wanted;
            }
            Err(_) => *entry = before,
        }
        done
    }

    /// Whose event this is.
    pub fn ready(&self, fd: RawFd, events: u32) -> Ready {
        let Some(entry) = usize::try_from(fd).ok().and_then(|at| self.all.get(at)) else {
            return Ready::default();
        };
        if entry.port == 0 {
            let registration = entry.registrations;
            let twisted = entry.is_twisted.then_some(TwistedEvent { fd, flags: events, registration });
            return Ready { port: None, twisted };
        }
        // What goes wrong is found out by reading; Twisted hears that it may write.
        let port = (events & !WRITE != 0).then_some(entry.port);
        let mine = events & entry.twisted & (READ | WRITE);
        let event = TwistedEvent { fd, flags: mine, registration: entry.registrations };
        Ready { port, twisted: (mine != 0).then_some(event) }
    }

    /// Is the descriptor still what the event was for?  It may have been closed since, and its number used again.
    pub fn is_current(&self, event: &TwistedEvent) -> bool {
        let entry = usize::try_from(event.fd).ok().and_then(|at| self.all.get(at));
        entry.is_some_and(|entry| entry.is_twisted && entry.registrations == event.registration)
    }
}
