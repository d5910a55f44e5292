//! Level 0: divides intervals between clock readings according to the clocks.
//!
//! The clocks show how much of an interval was spent on a processor and how much waiting for one.
//! The rest was blocked time and is assigned in this order: to the long span that ended with the
//! reading, if its kind can wait; to other spans of such kinds that were long enough to have
//! waited; to the long span if it is the user's function; to the remainder. The sums match the
//! clocks exactly, and only positions are estimated.

use super::capabilities::Capabilities;
use super::clean_thread::CleanThread;
use super::explained::Explained;
use super::tile::{Piece, Placement, Tiler, pieces};
use crate::span::SpanKind;
use ioloom_model::State;

/// A shorter call did not wait for a device: two switches and an interrupt take longer.
const SHORTEST_BLOCK_NS: u64 = 10_000;

/// Time of a piece by state.
#[derive(Debug, Clone, Copy, Default)]
struct Division {
    on_cpu_ns: u64,
    ready_ns: u64,
    blocked_ns: u64,
}

/// Clock readings at the end of an interval, relative to the start of the thread.
#[derive(Debug, Clone, Copy)]
struct Edge {
    at_ns: u64,
    cpu_ns: u64,
    run_delay_ns: u64,
    /// Whether it was taken at the end of a long span rather than from the thread totals.
    ends_long_span: bool,
}

pub(super) fn explain(thread: &CleanThread, seen: &Capabilities) -> Explained {
    let raw = &thread.raw;
    let pieces = pieces(&raw.spans, raw.start_ns, raw.end_ns, |kind| seen.blocked_in(kind));
    let mut divided: Vec<Division> = Vec::with_capacity(pieces.len());
    let edges = edges(thread);
    // An excess due to rounding or the cost of reading the clocks is carried over to the next
    // interval.
    let (mut cpu_before, mut delay_before) = (0, 0);
    for edge in &edges {
        let rest = &pieces[divided.len()..];
        let count = rest.partition_point(|p| p.start_ns + p.ns() / 2 <= edge.at_ns);
        let interval = &rest[..count];
        if interval.is_empty() {
            continue;
        }
        let ns: u64 = interval.iter().map(Piece::ns).sum();
        let on_cpu_ns = edge.cpu_ns.saturating_sub(cpu_before).min(ns);
        let ready_ns = edge.run_delay_ns.saturating_sub(delay_before).min(ns - on_cpu_ns);
        cpu_before += on_cpu_ns;
        delay_before += ready_ns;
        let sum = Division { on_cpu_ns, ready_ns, blocked_ns: ns - on_cpu_ns - ready_ns };
        divided.extend(divide(interval, sum, edge.ends_long_span));
    }
    let rest = &pieces[divided.len()..];
    divided.extend(rest.iter().map(by_kind));
    let mut tiler = Tiler::new(raw.start_ns, raw.end_ns);
    for (piece, part) in pieces.iter().zip(&divided) {
        fill(&mut tiler, piece, part);
    }
    Explained {
        segments: tiler.finish(State::OnCpu, Placement::PLACED),
        by_accounts: true,
        ready_known: raw.run_delay_ns.is_some()
            || raw.accounts.iter().any(|a| a.run_delay_ns.is_some()),
        no_clock: edges.is_empty(),
        ..Explained::default()
    }
}

/// Returns the clock readings in order, then the totals. Clocks that run backwards are held at
/// their last value.
fn edges(thread: &CleanThread) -> Vec<Edge> {
    let raw = &thread.raw;
    let mut edges: Vec<Edge> = Vec::with_capacity(raw.accounts.len() + 1);
    let (mut cpu_ns, mut run_delay_ns) = (0, 0);
    for account in raw.accounts.iter().filter(|a| a.at_ns > raw.start_ns && a.at_ns <= raw.end_ns) {
        cpu_ns = account.cpu_ns.max(cpu_ns);
        run_delay_ns = account.run_delay_ns.unwrap_or(0).max(run_delay_ns);
        edges.push(Edge { at_ns: account.at_ns, cpu_ns, run_delay_ns, ends_long_span: true });
    }
    if let Some(total) = raw.cpu_ns {
        edges.push(Edge {
            at_ns: raw.end_ns,
            cpu_ns: total.max(cpu_ns),
            run_delay_ns: raw.run_delay_ns.unwrap_or(0).max(run_delay_ns),
            ends_long_span: false,
        });
    }
    edges
}

/// Divides an interval among its pieces. Every sum is exact.
fn divide(interval: &[Piece], sum: Division, ends_long_span: bool) -> Vec<Division> {
    // Readings are taken only after long spans, so this one belongs to the last span that is not
    // short.
    let is_read = |p: &Piece| ends_long_span && p.kind.is_some() && p.ns() >= SHORTEST_BLOCK_NS;
    let long = interval.iter().rposition(is_read);
    let waits = |p: &Piece| p.blocked != State::Unknown;
    let mut room: Vec<u64> = interval.iter().map(Piece::ns).collect();
    let mut parts = vec![Division::default(); interval.len()];
    let mut give = |total: u64, may: &dyn Fn(usize) -> bool, room: &mut [u64], ready: bool| {
        let given = in_proportion(total, room, may);
        for (i, ns) in given.iter().enumerate() {
            room[i] -= ns;
            *(if ready { &mut parts[i].ready_ns } else { &mut parts[i].blocked_ns }) += ns;
        }
        total - given.iter().sum::<u64>()
    };
    let is_long = |i: usize| long == Some(i);
    let waited = |i: usize| waits(&interval[i]) && interval[i].ns() >= SHORTEST_BLOCK_NS;
    let mut left = sum.blocked_ns;
    left = give(left, &|i| is_long(i) && waits(&interval[i]), &mut room, false);
    left = give(left, &waited, &mut room, false);
    left = give(left, &is_long, &mut room, false);
    give(left, &|_| true, &mut room, false);
    let left = give(sum.ready_ns, &is_long, &mut room, true);
    give(left, &|_| true, &mut room, true);
    for (part, ns) in parts.iter_mut().zip(room) {
        part.on_cpu_ns = ns;
    }
    parts
}

/// Divides a total in proportion to the room of the eligible pieces, up to their sum.
fn in_proportion(total: u64, room: &[u64], may: &dyn Fn(usize) -> bool) -> Vec<u64> {
    let caps: Vec<u64> = (0..room.len()).map(|i| if may(i) { room[i] } else { 0 }).collect();
    let all: u64 = caps.iter().sum();
    let total = total.min(all);
    if all == 0 {
        return caps;
    }
    let part = |cap: u64| (u128::from(total) * u128::from(cap) / u128::from(all)) as u64;
    let mut given: Vec<u64> = caps.iter().map(|cap| part(*cap)).collect();
    let mut left = total - given.iter().sum::<u64>();
    for (ns, cap) in given.iter_mut().zip(&caps) {
        let more = left.min(cap - *ns);
        *ns += more;
        left -= more;
    }
    given
}

/// Without a clock: spans of waiting kinds count as blocked, all others as on-cpu.
fn by_kind(piece: &Piece) -> Division {
    let waits = matches!(
        piece.kind,
        Some(
            SpanKind::Memory
                | SpanKind::Completion
                | SpanKind::HandOver
                | SpanKind::Sync
                | SpanKind::Event
                | SpanKind::Sleep
                | SpanKind::RingWait
                | SpanKind::Input
        )
    );
    let ns = piece.ns();
    if waits {
        Division { blocked_ns: ns, ..Division::default() }
    } else {
        Division { on_cpu_ns: ns, ..Division::default() }
    }
}

/// Adds the segments of a piece in state order.
fn fill(tiler: &mut Tiler, piece: &Piece, part: &Division) {
    let whole = [part.on_cpu_ns, part.ready_ns, part.blocked_ns].contains(&piece.ns());
    let placement = if whole { Placement::PLACED } else { Placement::ESTIMATED };
    let on_cpu = piece.start_ns + part.on_cpu_ns;
    tiler.until(on_cpu, State::OnCpu, placement);
    tiler.until(on_cpu + part.ready_ns, State::Ready, placement);
    tiler.until(piece.end_ns, piece.blocked, placement);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_division_keeps_every_sum(
            lengths in prop::collection::vec((1..100_000_u64, 0..20_usize), 1..20),
            shares in (0..=100_u64, 0..=100_u64),
            ends_long_span in any::<bool>(),
        ) {
            let mut at = 0;
            let interval: Vec<Piece> = lengths
                .iter()
                .map(|(ns, kind)| {
                    at += ns;
                    let kind = SpanKind::ALL.get(*kind).copied().filter(|k| *k != SpanKind::Other);
                    let blocked = kind.map_or(State::Unknown, SpanKind::blocked_state);
                    Piece { start_ns: at - ns, end_ns: at, kind, blocked }
                })
                .collect();
            let on_cpu_ns = at * shares.0 / 100;
            let ready_ns = (at - on_cpu_ns) * shares.1 / 100;
            let sum = Division { on_cpu_ns, ready_ns, blocked_ns: at - on_cpu_ns - ready_ns };
            let parts = divide(&interval, sum, ends_long_span);
            let total = |f: fn(&Division) -> u64| parts.iter().map(f).sum::<u64>();
            prop_assert_eq!(total(|p| p.on_cpu_ns), on_cpu_ns);
            prop_assert_eq!(total(|p| p.ready_ns), ready_ns);
            prop_assert_eq!(total(|p| p.blocked_ns), sum.blocked_ns);
            for (piece, part) in interval.iter().zip(&parts) {
                prop_assert_eq!(part.on_cpu_ns + part.ready_ns + part.blocked_ns, piece.ns());
            }
        }
    }
}
