//! The walk through what came, however it is cut into reads.

mod support;

use msgnode_plane::counters::Punt;
use msgnode_plane::flow::Flow;
use msgnode_plane::partial_input::FREE;
use msgnode_plane::plane::Plane;
use msgnode_plane::port::{Framing, Room};
use msgnode_plane::slab::Key;
use msgnode_plane::walk::{Step, Walk, MAX_PENDING, MAX_PUNTS};
use proptest::prelude::*;
use support::{flow, masked};

const LONGEST: usize = 100_000;

struct Pair {
    plane: Plane,
    sender: Key,
    recipient: Key,
}

/// A sender whose messages of type t from a to b go to the recipient.
fn pair(framing: Framing) -> Pair {
    let mut plane = Plane::default();
    let sender = plane.add_port(framing, LONGEST, "host");
    let recipient = plane.add_port(Framing::Lines, LONGEST, "host");
    plane.ports.get_mut(recipient).expect("there").ready = true;
    assert!(plane.install(sender, flow("a", "b", "t", &[recipient])));
    Pair { plane, sender, recipient }
}

fn message(kind: &str, value: &str) -> Vec<u8> {
    format!(r#"{{"id":1,"type":"{kind}","from":"a","to":"b","body":{{"value":"{value}"}}}}"#).into_bytes()
}

/// What came of one read: messages that Python decides on, and bytes that are its own.
#[derive(Debug, Default, PartialEq)]
struct Python {
    punted: Vec<Vec<u8>>,
    foreign: Vec<u8>,
}

impl Pair {
    /// One read of these bytes; as long as rounds end, the next follows.
    fn read(&mut self, data: &[u8], python: &mut Python) {
        let mut buffer = Vec::new();
        let port = self.plane.ports.get_mut(self.sender).expect("there");
        let kept = port.move_pending(&mut buffer, data.len());
        buffer[kept..].copy_from_slice(data);
        loop {
            self.plane.round_bytes = 0;
            let mut walk = Walk::new(1, 5);
            loop {
                match self.plane.walk(self.sender, &mut buffer, &mut walk, &mut || 2) {
                    Step::Done => return,
                    Step::Over => break,
                    Step::Punt { start, end } => {
                        python.punted.push(buffer[start..end].to_vec());
                        walk.go_on(2);
                    }
                    Step::Foreign { start } => {
                        python.foreign.extend_from_slice(&buffer[start..]);
                        self.plane.ports.get_mut(self.sender).expect("there").at_border = false;
                        return;
                    }
                }
            }
            let port = self.plane.ports.get_mut(self.sender).expect("there");
            if port.paused > 0 {
                return;
            }
            buffer.clear();
            let kept = port.move_pending(&mut buffer, 0);
            buffer.truncate(kept);
        }
    }

    fn carried(&self) -> Vec<Vec<u8>> {
        let outgoing = &self.plane.ports.get(self.recipient).expect("there").outgoing;
        outgoing.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect()
    }
}

#[test]
fn a_message_of_a_flow_is_carried_and_counted() {
    let mut pair = pair(Framing::WebSocket);
    let mut python = Python::default();
    pair.read(&masked(&message("t", "x")), &mut python);
    assert_eq!(Python::default(), python);
    assert_eq!(vec![message("t", "x")], pair.carried());
    assert_eq!((1, 1), (pair.plane.counters.received, pair.plane.counters.sent));
    assert_eq!(vec![pair.recipient], pair.plane.touched);
}

#[test]
fn what_no_flow_is_for_goes_to_python_in_order() {
    let mut pair = pair(Framing::Lines);
    let mut python = Python::default();
    let lines = [message("t", "1"), message("T", "2"), message("t", "3"), b"nonsense".to_vec()];
    pair.read(&[lines.join(&b'\n'), b"\n".to_vec()].concat(), &mut python);
    assert_eq!(vec![lines[1].clone(), lines[3].clone()], python.punted);
    assert_eq!(vec![lines[0].clone(), lines[2].clone()], pair.carried());
    assert_eq!(1, pair.plane.counters.punted[Punt::NoFlow as usize]);
    assert_eq!(1, pair.plane.counters.punted[Punt::Header as usize]);
}

/// Whatever is in the way, the message is Python's and nothing has been sent.
fn refused(prepare: impl FnOnce(&mut Pair)) -> Vec<usize> {
    let mut pair = pair(Framing::Lines);
    prepare(&mut pair);
    let mut python = Python::default();
    pair.read(&[message("t", "x"), b"\n".to_vec()].concat(), &mut python);
    assert_eq!(vec![message("t", "x")], python.punted);
    assert!(pair.plane.touched.is_empty() && pair.plane.journal.is_empty());
    assert_eq!(0, pair.plane.counters.received);
    let punted = pair.plane.counters.punted.iter().enumerate();
    punted.filter(|(_, count)| **count > 0).map(|(why, _)| why).collect()
}

#[test]
fn what_has_changed_is_decided_again() {
    for change in [
        |pair: &mut Pair| pair.plane.generations.change(b"a"),
        |pair: &mut Pair| pair.plane.generations.change(b"b"),
    ] {
        assert_eq!(vec![Punt::Stale as usize], refused(change));
    }
    assert_eq!(vec![Punt::NoFlow as usize], refused(|pair| pair.plane.change_all()));
    assert_eq!(vec![Punt::NoFlow as usize], refused(|pair| pair.plane.clear_flows(pair.sender)));
}

#[test]
fn a_recipient_that_takes_nothing_is_pythons() {
    let recipient = |pair: &mut Pair, change: fn(&mut msgnode_plane::port::Port)| {
        change(pair.plane.ports.get_mut(pair.recipient).expect("there"));
    };
    assert_eq!(vec![Punt::Recipient as usize], refused(|pair| recipient(pair, |port| port.ready = false)));
    assert_eq!(
        vec![Punt::Room as usize],
        refused(|pair| recipient(pair, |port| port.room = Some(Room { messages: 1, bytes: 1000 })))
    );
    assert_eq!(
        vec![Punt::Room as usize],
        refused(|pair| recipient(pair, |port| port.room = Some(Room { messages: 9, bytes: 20 })))
    );
    assert_eq!(
        vec![Punt::Room as usize],
        refused(|pair| {
            pair.plane.limits.unsent_bytes = 50;
        })
    );
    assert_eq!(
        vec![Punt::Recipient as usize],
        refused(|pair| {
            pair.plane.remove_port(pair.recipient);
            // The place is used again, by a port that is ready.
            let next = pair.plane.add_port(Framing::Lines, LONGEST, "");
            pair.plane.ports.get_mut(next).expect("there").ready = true;
            pair.recipient = next;
        })
    );
}

#[test]
fn a_blocked_sender_and_an_awaited_response_are_pythons() {
    assert_eq!(
        vec![Punt::Blocked as usize],
        refused(|pair| pair.plane.ports.get_mut(pair.sender).expect("there").blocked = 1)
    );
    let mut pair = pair(Framing::Lines);
    let response = Flow { kind: b"Response"[..].into(), ..flow("a", "b", "t", &[pair.recipient]) };
    pair.plane.install(pair.sender, response);
    pair.plane.awaited.add(b"b", b"1");
    let mut python = Python::default();
    let other = String::from_utf8(message("Response", "x")).expect("text").replace(":1,", ":2,").into_bytes();
    pair.read(&[message("Response", "x"), other.clone(), vec![]].join(&b'\n'), &mut python);
    assert_eq!(vec![message("Response", "x")], python.punted);
    assert_eq!(vec![other], pair.carried());
}

#[test]
fn many_messages_for_python_wait_for_later_rounds() {
    let mut pair = pair(Framing::Lines);
    let line = [message("other", "x"), b"\n".to_vec()].concat();
    let mut data = line.repeat(MAX_PUNTS as usize + 10);
    let mut walk = Walk::new(1, 5);
    let mut punts = 0;
    while let Step::Punt { .. } = pair.plane.walk(pair.sender, &mut data, &mut walk, &mut || 2) {
        punts += 1;
    }
    assert_eq!(MAX_PUNTS, punts);
    let port = pair.plane.ports.get(pair.sender).expect("there");
    assert!(port.left_over);
    assert_eq!(10 * line.len(), port.pending.len());
    assert_eq!(0, pair.plane.partial.bytes, "whole messages are no partial input");
}

#[test]
fn a_paused_port_keeps_what_has_come() {
    let mut pair = pair(Framing::Lines);
    pair.plane.ports.get_mut(pair.sender).expect("there").paused = 1;
    let mut python = Python::default();
    pair.read(&[message("t", "x"), b"\n".to_vec()].concat(), &mut python);
    assert_eq!(Python::default(), python);
    assert!(pair.carried().is_empty());
    assert!(pair.plane.ports.get(pair.sender).expect("there").left_over);
}

#[test]
fn a_long_beginning_is_counted_and_bounded() {
    let mut pair = pair(Framing::WebSocket);
    let frame = masked(&message("t", &"x".repeat(30_000)));
    let mut python = Python::default();
    pair.read(&frame[..10_000], &mut python);
    assert_eq!(10_000 - 4096, pair.plane.partial.bytes);
    pair.read(&frame[10_000..MAX_PENDING], &mut python);
    assert_eq!(Python::default(), python);
    pair.read(&frame[MAX_PENDING..MAX_PENDING + 1], &mut python);
    assert_eq!(frame[..MAX_PENDING + 1], python.foreign, "from the first byte of the frame on, as it came");
    assert_eq!(0, pair.plane.partial.bytes);
}

#[test]
fn a_beginning_beyond_the_limit_of_its_host_is_pythons() {
    let mut pair = pair(Framing::WebSocket);
    pair.plane.partial.most_of_host = 1000;
    let frame = masked(&message("t", &"x".repeat(10_000)));
    let mut python = Python::default();
    pair.read(&frame[..6000], &mut python);
    assert_eq!(frame[..6000], python.foreign);
    assert_eq!(0, pair.plane.partial.bytes);
}

#[test]
fn the_end_of_a_connection_gives_back_what_was_counted() {
    let mut pair = pair(Framing::WebSocket);
    let frame = masked(&message("t", &"x".repeat(10_000)));
    pair.read(&frame[..9000], &mut Python::default());
    assert!(pair.plane.partial.of_host("host") > 0);
    pair.plane.remove_port(pair.sender);
    assert_eq!((0, 0), (pair.plane.partial.bytes, pair.plane.partial.of_host("host")));
    assert_eq!(0, pair.plane.flows.len());
}

/// Messages of all kinds, as they stand in a stream.
fn unit(framing: Framing) -> impl Strategy<Value = Vec<u8>> {
    let payload = prop_oneof![
        "[a-zé]{0,40}".prop_map(|value| message("t", &value)),
        "[a-z]{0,400}".prop_map(|value| message("other", &value)),
        "[ -~]{1,30}".prop_map(String::into_bytes),
    ];
    payload.prop_map(move |payload| match framing {
        Framing::WebSocket => masked(&payload),
        Framing::Lines => [payload, b"\n".to_vec()].concat(),
    })
}

fn all_at_once_or_cut(framing: Framing, units: &[Vec<u8>], tail: &[u8], cuts: &[usize]) {
    let stream = [units.concat(), tail.to_vec()].concat();
    let (mut whole, mut cut) = (pair(framing), pair(framing));
    let (mut of_whole, mut of_cut) = (Python::default(), Python::default());
    whole.read(&stream, &mut of_whole);
    let mut at = 0;
    for size in cuts.iter().cycle() {
        let next = (at + size).min(stream.len());
        cut.read(&stream[at..next], &mut of_cut);
        at = next;
        if at == stream.len() {
            break;
        }
    }
    assert_eq!(of_whole, of_cut);
    assert_eq!(whole.carried(), cut.carried());
}

proptest! {
    #[test]
    fn cuts_make_no_difference_to_frames(
        units in prop::collection::vec(unit(Framing::WebSocket), 0..20),
        tail in prop::sample::select(vec![&b""[..], b"\x89\x80abcd", b"\x01", b"\x81\x00", b"\x81\x82abcd\x9e\x9d"]),
        cuts in prop::collection::vec(1usize..90, 1..10),
    ) {
        all_at_once_or_cut(Framing::WebSocket, &units, tail, &cuts);
    }

    #[test]
    fn cuts_make_no_difference_to_lines(
        units in prop::collection::vec(unit(Framing::Lines), 0..20),
        tail in prop::sample::select(vec![&b""[..], b"\xff\n", b"\r\n\n"]),
        cuts in prop::collection::vec(1usize..90, 1..10),
    ) {
        all_at_once_or_cut(Framing::Lines, &units, tail, &cuts);
    }

    #[test]
    fn no_stream_makes_it_fail(
        data in prop::collection::vec(any::<u8>(), 0..400),
        framing in prop::sample::select(vec![Framing::WebSocket, Framing::Lines]),
    ) {
        pair(framing).read(&data, &mut Python::default());
    }
}

#[test]
fn a_round_goes_on_for_as_long_as_is_left_of_it() {
    let mut plane = Plane::default();
    plane.limits.round_nanoseconds = 5;
    plane.begin_round();
    assert_eq!(105, plane.round_end(100));
    plane.spend(100, 103);
    assert_eq!(1002, plane.round_end(1000), "what passes between is not counted");
    plane.spend(1000, 1010);
    assert_eq!(2000, plane.round_end(2000));
    plane.begin_round();
    assert_eq!(2005, plane.round_end(2000));
}

#[test]
fn what_comes_behind_what_is_left_over_waits_with_it() {
    let mut pair = pair(Framing::Lines);
    assert!(!pair.plane.leave_over(pair.sender, b"x"));
    let mut data = [message("t", "1"), b"\n".to_vec()].concat();
    assert_eq!(Step::Over, pair.plane.walk(pair.sender, &mut data, &mut Walk::new(1, 1), &mut || 1));
    let more = vec![b'x'; 10_000];
    assert!(pair.plane.leave_over(pair.sender, &more));
    assert!(pair.plane.leave_over(pair.sender, b"y\n"));
    assert_eq!((data.len() + 10_002 - FREE) as u64, pair.plane.partial.bytes);
    let all = [&data[..], &more, b"y\n"].concat();
    assert_eq!(all, pair.plane.take_pending(pair.sender));
    assert_eq!(0, pair.plane.partial.bytes);
}
