//! What parts of the plane cost: cargo run --release --example speed

#[path = "../tests/support/mod.rs"]
mod support;

use std::hint::black_box;

use msgnode_plane::flow::Flow;
use msgnode_plane::header::scan;
use msgnode_plane::plane::Plane;
use msgnode_plane::port::Framing;
use msgnode_plane::traffic_log::{LineTemplate, LineTexts};
use msgnode_plane::walk::Walk;
use rustix::time::{clock_gettime, ClockId};
use support::{flow, masked};

const ROUNDS: usize = 7;
const FROM: &str = "hyperty://localhost/3f2a8c1e-aa";
const TO: &str = "hyperty://localhost/9b1d7e42-bb";

fn message(size: usize, spaces: bool) -> Vec<u8> {
    let separator = if spaces { " " } else { "" };
    format!(
        "{{\"id\":{separator}12345,{separator}\"type\":{separator}\"update\",{separator}\"from\":{separator}\"{FROM}\",\
         {separator}\"to\":{separator}\"{TO}\",{separator}\"body\":{separator}{{\"value\":{separator}\"{}\"}}}}",
        "x".repeat(size)
    )
    .into_bytes()
}

/// Nanoseconds that this thread has had of a CPU.
fn cpu_time() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Nanoseconds of CPU time of one call, the median of some rounds.
fn time(count: usize, mut call: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let began = cpu_time();
            for _ in 0..count {
                call();
            }
            (cpu_time() - began) as f64 / count as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 2]
}

fn main() {
    for (name, size, spaces) in
        [("100 B", 100, false), ("100 B, spaces", 100, true), ("1 kB", 1000, false), ("10 kB", 10_000, false)]
    {
        let data = message(size, spaces);
        let count = 20_000_000 / (data.len() + 100);
        let scanned = time(count, || {
            black_box(scan(black_box(&data)));
        });
        println!("{name:14} header scan {scanned:7.0} ns");
        for logged in [false, true] {
            println!("{name:14} carried, log {logged:5} {:7.0} ns", carried(&data, logged));
        }
    }
}

/// Nanoseconds of one message from a masked frame to the recipient's buffer.
fn carried(payload: &[u8], logged: bool) -> f64 {
    let mut plane = Plane::default();
    let sender = plane.add_port(Framing::WebSocket, 1 << 20, "");
    let recipient = plane.add_port(Framing::WebSocket, 1 << 20, "");
    plane.ports.get_mut(recipient).expect("there").ready = true;
    let line = LineTemplate::new(&LineTexts {
        node: "node",
        session: "runtime://localhost/12345",
        connector: "websocket",
        peer: "127.0.0.1:12345",
        kind: "update",
        from: FROM,
        to: TO,
        recipients: 1,
    });
    let flow = flow(FROM, TO, "update", &[recipient]);
    plane.install(sender, Flow { line: logged.then_some(line), ..flow });
    let frame = masked(payload);
    let many = (16_384 / frame.len()).max(1);
    let read = frame.repeat(many);
    let mut now = || 1_700_000_000_000_000_000;
    let mut buffer = read.clone();
    let count = 10_000_000 / read.len();
    let each = time(count, || {
        buffer.copy_from_slice(&read);
        plane.round_bytes = 0;
        let mut walk = Walk::new(0, u64::MAX);
        black_box(plane.walk(sender, &mut buffer, &mut walk, &mut now));
        plane.ports.get_mut(recipient).expect("there").outgoing.clear();
        plane.log.take();
    });
    each / many as f64
}
