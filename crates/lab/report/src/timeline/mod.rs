//! Timelines: the states of every thread over time, as a page, a drawing and plain text.
//!
//! [`timeline_page`] is one HTML file for one or more traces: findings in words, zoomable lanes
//! (the script of `ui/src/timeline`), exact shares of the visible range, and evidence. [`section`]
//! returns the same as part of another page, which includes style and script once for all sections.
//! [`timeline_svg`] is the static drawing for print and README, [`timeline_text`] the version for a
//! terminal. All of them use [`ioloom_trace::shares`], so their shares agree to the nanosecond.
//!
//! The page contains each trace once, packed, and a static drawing for readers without scripts. A trace
//! of a million segments adds about 3 MB to the page.

mod page;
mod svg;
mod text;
mod words;

pub(crate) use page::{CSS, SCRIPT};
pub use page::{section, timeline_page};
pub(crate) use svg::write_patterns;
pub use svg::{SvgOptions, Theme, timeline_svg};
pub use text::timeline_text;

use ioloom_model::State;

/// Maximum number of roles with lanes or shares; the rest are counted. A build has one role per process.
const ROLES: usize = 64;

/// Returns the letter of a state for lanes without colour; the viewer uses the same letters.
pub const fn letter(state: State) -> char {
    match state {
        State::OnCpu => 'C',
        State::Ready => 'R',
        State::Preempted => 'P',
        State::Io => 'I',
        State::AsyncIo => 'A',
        State::Paging => 'F',
        State::Sync => 'S',
        State::Lock => 'L',
        State::Event => 'E',
        State::Sleep => 'Z',
        State::Unknown => '?',
    }
}

/// Returns each state's share in tenths of a percent, rounded by largest remainder to add up to
/// 1000; all zeros if the total time is zero.
pub(crate) fn tenths(ns: &[u64]) -> Vec<u64> {
    let total: u128 = ns.iter().map(|v| u128::from(*v)).sum();
    if total == 0 {
        return vec![0; ns.len()];
    }
    let exact: Vec<(u64, u128)> = ns
        .iter()
        .map(|v| {
            let part = u128::from(*v) * 1000;
            (u64::try_from(part / total).unwrap_or(u64::MAX), part % total)
        })
        .collect();
    let mut out: Vec<u64> = exact.iter().map(|(whole, _)| *whole).collect();
    let mut order: Vec<usize> = (0..ns.len()).collect();
    order.sort_by_key(|i| (std::cmp::Reverse(exact[*i].1), *i));
    let missing = 1000_u64.saturating_sub(out.iter().sum());
    for i in order.into_iter().cycle().take(missing as usize) {
        out[i] += 1;
    }
    out
}

/// Formats a share given in tenths of a percent.
pub(crate) fn share_text(tenths: u64) -> String {
    format!("{}.{} %", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn letters_differ() {
        let letters: BTreeSet<char> = State::ALL.into_iter().map(letter).collect();
        assert_eq!(letters.len(), State::ALL.len());
    }

    #[test]
    fn tenths_add_up() {
        for ns in [vec![1, 1, 1], vec![u64::MAX, u64::MAX, 7], vec![0, 5], vec![997, 1, 1, 1]] {
            assert_eq!(tenths(&ns).iter().sum::<u64>(), 1000, "{ns:?}");
        }
        assert_eq!(tenths(&[0, 0]), [0, 0]);
    }
}
