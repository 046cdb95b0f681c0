//! A flow never outlives the decision that it repeats: the plane beside a model that decides each message anew.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use msgnode_plane::plane::Plane;
use msgnode_plane::port::{Framing, Room};
use msgnode_plane::slab::Key;
use proptest::prelude::*;
use support::flow;

const CLIENTS: usize = 4;
const ADDRESSES: [&str; 4] = ["a", "b", "a/x", "a/x/y"];
const KINDS: [&str; 3] = ["t", "response", "refused"];
const ROOM: Room = Room { messages: 3, bytes: 1000 };

/// What happens to a node.
#[derive(Clone, Debug)]
enum Event {
    Bind { client: usize, address: usize },
    Unbind { client: usize, address: usize },
    Open { client: usize, name: usize },
    Close { name: usize },
    Pause { client: usize },
    Ready { client: usize },
    Acknowledging { client: usize },
    Acknowledged { client: usize },
    Reconnect { client: usize },
    ChangeSession { client: usize },
    ChangePolicy { refused: usize },
    Block { client: usize },
    Unblock { client: usize },
    Await { address: usize, id: u8 },
    Forget { address: usize, id: u8 },
    Send { client: usize, from: usize, to: usize, kind: usize, id: u8 },
}

/// One client as the control plane sees it.
#[derive(Clone, Default)]
struct Client {
    port: Key,
    is_ready: bool,
    blocked: u32,
    room: Option<Room>,
}

/// The control plane: what is so now, whatever the plane remembers.
#[derive(Default)]
struct Model {
    plane: Plane,
    clients: Vec<Client>,
    bound: BTreeMap<usize, BTreeSet<usize>>,
    /// Who hears everything at and below an address, by the address.
    names: BTreeMap<usize, usize>,
    refused: usize,
    awaited: BTreeSet<(usize, u8)>,
}

impl Model {
    fn new() -> Self {
        let mut model = Model { refused: KINDS.len(), ..Default::default() };
        for _ in 0..CLIENTS {
            let port = model.plane.add_port(Framing::Lines, 1000, "");
            model.clients.push(Client { port, ..Default::default() });
        }
        model
    }

    /// Who hears the address: those bound to it, else the one with the nearest name that it is at or below.
    fn resolve(&self, to: usize) -> Option<BTreeSet<usize>> {
        let bound = self.bound.get(&to).filter(|clients| !clients.is_empty());
        if let Some(clients) = bound {
            return Some(clients.clone());
        }
        let to = format!("{}/", ADDRESSES[to]);
        let names = self.names.iter().filter(|(name, _)| to.starts_with(&format!("{}/", ADDRESSES[**name])));
        names.max_by_key(|(name, _)| ADDRESSES[**name].len()).map(|(_, client)| BTreeSet::from([*client]))
    }

    /// Who gets such a message now; None: it is not carried, or only Python may.
    fn decide(&self, client: usize, to: usize, kind: usize, id: u8) -> Option<BTreeSet<usize>> {
        let is_awaited = KINDS[kind] == "response" && self.awaited.contains(&(to, id));
        if kind == self.refused || is_awaited || self.clients[client].blocked > 0 {
            return None;
        }
        let recipients = self.resolve(to)?;
        let takes = |each: &usize| {
            let client = &self.clients[*each];
            client.is_ready && client.room.is_none_or(|room| room.has(100))
        };
        let fits = !recipients.is_empty() && !recipients.contains(&client) && recipients.iter().all(takes);
        fits.then_some(recipients)
    }

    fn set_ready(&mut self, client: usize, is_ready: bool, room: Option<Room>) {
        let client = &mut self.clients[client];
        (client.is_ready, client.room) = (is_ready, room);
        let port = self.plane.ports.get_mut(client.port).expect("there");
        (port.ready, port.room) = (is_ready, room);
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Bind { client, address } => {
                self.bound.entry(address).or_default().insert(client);
                self.plane.generations.change(ADDRESSES[address].as_bytes());
            }
            Event::Unbind { client, address } => {
                self.bound.entry(address).or_default().remove(&client);
                self.plane.generations.change(ADDRESSES[address].as_bytes());
            }
            Event::Open { client, name } => {
                self.names.insert(name, client);
                self.plane.generations.change_name(ADDRESSES[name].as_bytes());
            }
            Event::Close { name } => {
                self.names.remove(&name);
                self.plane.generations.change_name(ADDRESSES[name].as_bytes());
            }
            Event::Pause { client } => self.set_ready(client, false, None),
            Event::Ready { client } => self.set_ready(client, true, None),
            Event::Acknowledging { client } | Event::Acknowledged { client } => {
                self.set_ready(client, true, Some(ROOM));
            }
            Event::Reconnect { client } => {
                // The number is used again, and what is bound stays bound.
                self.plane.remove_port(self.clients[client].port);
                self.clients[client] =
                    Client { port: self.plane.add_port(Framing::Lines, 1000, ""), ..Default::default() };
            }
            Event::ChangeSession { client } => {
                // What was bound ends with the session, and no address is said to have changed.
                for clients in self.bound.values_mut() {
                    clients.remove(&client);
                }
                self.names.retain(|_, owner| *owner != client);
                self.plane.renew(self.clients[client].port);
            }
            Event::ChangePolicy { refused } => {
                self.refused = refused;
                self.plane.change_all();
            }
            Event::Block { client } => self.block(client, 1),
            Event::Unblock { client } => self.block(client, 0),
            Event::Await { address, id } => {
                self.awaited.insert((address, id));
                self.plane.awaited.add(ADDRESSES[address].as_bytes(), &[b'0' + id]);
            }
            Event::Forget { address, id } => {
                self.awaited.remove(&(address, id));
                self.plane.awaited.remove(ADDRESSES[address].as_bytes(), &[b'0' + id]);
            }
            Event::Send { client, from, to, kind, id } => self.send(client, from, to, kind, id),
        }
    }

    fn block(&mut self, client: usize, count: u32) {
        let client = &mut self.clients[client];
        client.blocked = count;
        self.plane.ports.get_mut(client.port).expect("there").blocked = count;
    }

    fn send(&mut self, client: usize, from: usize, to: usize, kind: usize, id: u8) {
        let (from, address, kind_name) = (ADDRESSES[from], ADDRESSES[to], KINDS[kind]);
        let message = format!(r#"{{"id":{id},"type":"{kind_name}","from":"{from}","to":"{address}"}}"#);
        let expected = self.decide(client, to, kind, id);
        let port = self.clients[client].port;
        let carried = self.plane.carry(port, message.as_bytes(), 1, || 2).is_ok();
        let got = self.take_sent(&message);
        if carried {
            assert_eq!(expected.as_ref(), Some(&got), "carried otherwise than decided now");
            for each in &got {
                if let Some(room) = &mut self.clients[*each].room {
                    room.take(message.len());
                }
            }
            return;
        }
        assert!(got.is_empty(), "refused, and sent all the same");
        if let Some(recipients) = expected {
            let recipients: Vec<Key> = recipients.iter().map(|each| self.clients[*each].port).collect();
            self.plane.install(port, flow(from, address, kind_name, &recipients));
        }
    }

    /// Which clients were just sent this message.
    fn take_sent(&mut self, message: &str) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        for (number, client) in self.clients.iter().enumerate() {
            let port = self.plane.ports.get_mut(client.port).expect("there");
            if !port.outgoing.is_empty() {
                assert_eq!(format!("{message}\n").as_bytes(), port.outgoing);
                found.insert(number);
            }
            port.clear_outgoing();
        }
        found
    }
}

fn event() -> impl Strategy<Value = Event> {
    let (client, address, id) = (0..CLIENTS, 0..ADDRESSES.len(), 0..3u8);
    let send = (client.clone(), address.clone(), address.clone(), 0..KINDS.len(), id.clone())
        .prop_map(|(client, from, to, kind, id)| Event::Send { client, from, to, kind, id });
    let of_address = (client.clone(), address.clone());
    let awaited = (address.clone(), id);
    prop_oneof![
        20 => send,
        2 => of_address.clone().prop_map(|(client, address)| Event::Bind { client, address }),
        1 => of_address.clone().prop_map(|(client, address)| Event::Unbind { client, address }),
        2 => of_address.prop_map(|(client, name)| Event::Open { client, name }),
        1 => address.prop_map(|name| Event::Close { name }),
        1 => client.clone().prop_map(|client| Event::Pause { client }),
        4 => client.clone().prop_map(|client| Event::Ready { client }),
        1 => client.clone().prop_map(|client| Event::Acknowledging { client }),
        1 => client.clone().prop_map(|client| Event::Acknowledged { client }),
        1 => client.clone().prop_map(|client| Event::Reconnect { client }),
        1 => client.clone().prop_map(|client| Event::ChangeSession { client }),
        1 => (0..=KINDS.len()).prop_map(|refused| Event::ChangePolicy { refused }),
        1 => client.clone().prop_map(|client| Event::Block { client }),
        2 => client.prop_map(|client| Event::Unblock { client }),
        1 => awaited.clone().prop_map(|(address, id)| Event::Await { address, id }),
        1 => awaited.prop_map(|(address, id)| Event::Forget { address, id }),
    ]
}

proptest! {
    #[test]
    fn no_flow_outlives_its_decision(events in prop::collection::vec(event(), 0..300)) {
        let mut model = Model::new();
        for event in events {
            model.apply(event);
        }
    }
}
